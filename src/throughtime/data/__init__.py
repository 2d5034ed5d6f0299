"""Real, small, variable-length data that ships with the package (see README.md for sources and licences)."""

from throughtime.data._japanese_vowels import JapaneseVowels, PaddedUtterances, Utterances, japanese_vowels

__all__ = ["JapaneseVowels", "PaddedUtterances", "Utterances", "japanese_vowels"]
