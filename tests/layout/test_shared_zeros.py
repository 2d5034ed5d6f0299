"""Shared zeros are recognised by the tensor itself, never by an `id` that another tensor may have."""

from __future__ import annotations

import pytest
import torch

from throughtime._lru import LruCache
from throughtime.layout import shared_zeros

pytestmark = pytest.mark.covers("memory")


def test_only_the_shared_tensor_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_zeros, "_SHARED", {})
    zeros = shared_zeros._share(torch.zeros(3))
    assert shared_zeros.are_shared_zeros(zeros)
    assert not shared_zeros.are_shared_zeros(zeros.clone())
    assert not shared_zeros.are_shared_zeros(zeros.view_as(zeros))


def test_a_tensor_with_the_id_of_a_shared_one_is_not_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    state = torch.ones(3)
    monkeypatch.setattr(shared_zeros, "_SHARED", {id(state): torch.zeros(3)})
    assert not shared_zeros.are_shared_zeros(state)


def test_evicted_zeros_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_zeros, "_SHARED", {})
    cache: LruCache[int, torch.Tensor] = LruCache(1, shared_zeros._CACHE._evicted)
    first, second = (shared_zeros._share(torch.zeros(size)) for size in (2, 3))
    cache.insert(1, first)
    cache.insert(2, second)
    assert not shared_zeros.are_shared_zeros(first)
    assert shared_zeros.are_shared_zeros(second)
