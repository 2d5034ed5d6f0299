"""The report: whole in one file, drawn without an error in a real browser, honest about its numbers."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from _reports import full_report, history
from matplotlib.image import imread

import throughtime as tt
from throughtime.train.report import _report

pytestmark = pytest.mark.covers("report")

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
in_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium here to open the report in")


def opened(path: Path, *flags: str) -> tuple[str, str]:
    """The page as the browser ends up with it, and what it said meanwhile."""
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    # What a browser does for itself in the background is none of ours.
    command += ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    profile = f"--user-data-dir={path.parent / 'profile'}"
    # A page that asks for anything from a network gets an error, which is shown.
    offline = "--host-resolver-rules=MAP * ~NOTFOUND"
    run = subprocess.run(
        [*command, profile, offline, *flags, "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return run.stdout, "\n".join(line for line in run.stderr.splitlines() if "CONSOLE" in line)


@in_browser
def test_every_part_is_drawn_without_an_error(tmp_path: Path) -> None:
    page, complaints = opened(full_report().write(tmp_path / "report.html"))
    assert complaints == ""
    assert 'data-ready="true"' in page
    sections = re.findall(r'<section id="([\w-]+)"', page)
    assert sections == ["learning", "confusion", "forecasts", "attention", "through-time", "cost", "plan", "settings"]
    for label in ("loss by epoch", "confusion matrix", "forecast of level", "attention map", "histogram of lengths",
                  "gradient norm through time", "milliseconds a step", "memory by step"):  # fmt: skip
        assert f'aria-label="{label}"' in page
    assert page.count("<canvas") == 1
    assert page.count('<button type="button" aria-pressed=') == 4
    assert "runs on: cpu" in page
    assert "NaN" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "undefined" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


@in_browser
def test_pickers_hover_and_theme_work(tmp_path: Path) -> None:
    # The page's own script runs first; then ours does what a reader would.
    acts = """<script>
    document.querySelectorAll("#through-time .picker button")[1].click();
    document.querySelectorAll("#forecasts .picker button")[1].click();
    document.getElementById("theme").click();
    const canvas = document.querySelector("canvas"), box = canvas.getBoundingClientRect();
    canvas.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + 2, clientY: box.top + 2}));
    document.body.dataset.tip = document.querySelector(".tip").textContent;
    document.body.dataset.columns = canvas.width;
    const chart = document.querySelector("#learning svg"), place = chart.getBoundingClientRect();
    const middle = place.left + place.width / 2;
    chart.dispatchEvent(new PointerEvent("pointermove", {clientX: middle, clientY: place.top + 9}));
    document.body.dataset.curve = document.querySelector(".tip").textContent;
    const shown = document.querySelector(".tip");
    document.querySelectorAll("#learning svg").forEach((one) => {
      const far = one.getBoundingClientRect().right - 1;
      one.dispatchEvent(new PointerEvent("pointermove", {clientX: far, clientY: place.top + 9}));
      const tip = shown.getBoundingClientRect(), room = document.documentElement.clientWidth - 12;
      if (tip.right > room || (tip.right > far && far > room - tip.width)) document.body.dataset.cut = tip.right;
    });
    </script></body>"""
    path = tmp_path / "report.html"
    path.write_text(full_report().html().replace("</body>", acts))
    page, complaints = opened(path)
    assert complaints == ""
    assert re.search(r'<html[^>]* data-theme="(dark|light)"', page)
    body = html.unescape(re.search(r"<body[^>]*>", page)[0])
    assert re.search(r"data-tip=\"step 1\nunit \d\n-?[\d.e-]+\"", body)
    assert 'data-columns="3"' in body
    assert re.search(r"data-curve=\"epoch [\d.]+\n", body)
    assert "data-cut" not in body, "a tip at the right edge keeps off it"


def is_colour(picture: np.ndarray, colour: str) -> np.ndarray:
    """Where a picture has a colour, give or take what smoothing of edges does to it."""
    wanted = np.array([int(colour[place : place + 2], 16) for place in (0, 2, 4)])
    return (np.abs(picture.astype(np.int16) - wanted.astype(np.int16)) <= 6).all(-1)


@in_browser
@pytest.mark.parametrize("width", [1100, 500], ids=["desk", "phone"])
def test_it_looks_as_it_should(width: int, tmp_path: Path) -> None:
    """As a picture: ink on paper, curves in their colours, maps of many shades, and nothing beyond the margins."""
    path, shot = full_report().write(tmp_path / "report.html"), tmp_path / "shot.png"
    opened(path, "--hide-scrollbars", f"--window-size={width},4000", f"--screenshot={shot}")
    picture = (255 * imread(shot)[..., :3]).round().astype(np.uint8)
    assert picture.shape[:2] == (4000, width)
    paper = is_colour(picture, "fbfaf6")
    assert paper[:, :6].all(), "the left margin"
    assert paper[:, -6:].all(), "the right margin: nothing is cut off"
    assert is_colour(picture[:300], "26292c").sum() > 500, "a title"
    drawn = np.flatnonzero(~paper.all(1))
    assert drawn[-1] > 1800, "a long page"
    assert np.diff(drawn).max() < 150, "without holes"
    for curve in ("2a6f97", "d1664a"):
        assert is_colour(picture, curve).sum() > 300
    assert len(np.unique(picture.astype(np.int32) @ [65536, 256, 1])) > 200


@in_browser
@pytest.mark.parametrize("part", ["nothing", "one epoch", "long"])
def test_small_and_large_reports_are_drawn(part: str, tmp_path: Path) -> None:
    report = tt.train.Report("t")
    if part == "one epoch":
        report.add_history(history(1, 1))
        report.add_through_time("one step", {"Reading": (np.zeros((1, 3)), np.zeros(1))})
        report.add_lengths([4])
        report.add_confusion([[0]], ["only"])
    if part == "long":
        report.add_history(history(200, 20))
        report.add_through_time("long", {"Reading": (np.random.randn(5000, 40), np.geomspace(1e-20, 1, 5000))})
        report.add_lengths(np.random.randint(1, 90_000, 500))
        report.add_confusion(np.eye(60, dtype=int), [f"class {place}" for place in range(60)])
    path = report.write(tmp_path / "report.html")
    page, complaints = opened(path)
    assert complaints == ""
    assert 'data-ready="true"' in page
    assert path.stat().st_size < 400_000


def test_nothing_is_fetched_and_nothing_breaks_out() -> None:
    page = full_report().html()
    addresses = set(re.findall(r"""(?:https?:)?//[\w.]+[^\s"'<)]*""", page)) - {"http://www.w3.org/2000/svg"}
    assert not [address for address in addresses if "." in address.split("/")[2]]
    assert not re.search(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"(?!data:)", page)
    assert "<h1>A &lt;b&gt;title&lt;/b&gt;</h1>" in page
    assert page.count("</script>") == 2
    assert "{{" not in page


def test_a_report_replaces_an_earlier_one_only_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = full_report().write(tmp_path / "report.html")
    before = path.read_text()
    broken = tt.train.Report("t")
    monkeypatch.setattr(broken, "html", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        broken.write(path)
    assert path.read_text() == before
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_a_checkout_that_is_not_installed_writes_reports_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise _report.PackageNotFoundError(name)

    monkeypatch.setattr(_report, "version", missing)
    assert "Written by throughtime from a checkout." in tt.train.Report("A title", "An outcome.").html()
