"""Pages as a browser shows them: marks, hover, keys, filter, log axes; hostile names; light, dark, phone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from inference_logging.read.pages import page
from inference_logging.read.stats.summary import duration_text
from inference_logging.read.terminal import safe
from tests.kit.browser import DESK, DRAWN, PHONE, browser, is_readable, needs_browser, violations, wait_until_fits
from tests.read.sample_page import BEGIN_S, RISING, SECONDS, VISIBLE, body_of, plots, sample

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.servers, needs_browser]


DOT = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    page.write(path, sample())
    return path


@pytest.fixture(scope="module")
def running(written: Path) -> Iterator[Page]:
    with browser() as opened:
        yield opened


@pytest.fixture
def shown(running: Page, written: Path) -> Page:
    """Return the page as it is when it was just opened, with the pointer beside all plots."""
    running.set_viewport_size({"width": DESK, "height": 900})
    running.emulate_media(color_scheme="light")
    running.mouse.move(0, 0)
    running.goto(written.as_uri())
    return running


def hover(page: Page, name: str, across: float, down: float = 0.5, part: str = ".u-over") -> str:
    """Move the pointer to a place in a plot, as shares of its size; return the words of the tip."""
    plot = page.locator(f"#plot-{name} {part}")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * across, box["y"] + box["height"] * down)
    return tip(page, name)


def tip(page: Page, name: str) -> str:
    found = page.locator(f"#plot-{name} .plot-tip")
    return " ".join(found.inner_text().split()) if found.is_visible() else ""


def heights(page: Page, name: str, colour: str, places: list[float]) -> list[float]:
    """Return how high a canvas is painted in a colour at each place across, as shares from the bottom."""
    found = page.evaluate(
        """([name, colour, places]) => {
      const plot = document.querySelector(`#plot-${name} .u-wrap`), over = plot.querySelector('.u-over');
      const wanted = getComputedStyle(document.documentElement).getPropertyValue(`--${colour}`).match(/[0-9a-f]{2}/g)
        .map(part => parseInt(part, 16));
      const [ratio, width, height] = [devicePixelRatio, over.offsetWidth, over.offsetHeight];
      const {data} = plot.querySelector('canvas').getContext('2d').getImageData(over.offsetLeft * ratio,
        over.offsetTop * ratio, width * ratio, height * ratio);
      const isPainted = (x, y) => wanted.every((part, i) => Math.abs(data[(y * width * ratio + x) * 4 + i] - part) < 40)
        && data[(y * width * ratio + x) * 4 + 3] > 120;
      return places.map(place => {
        const x = Math.min(Math.round(place * width * ratio), width * ratio - 1);
        for (let y = 0; y < height * ratio; y++) if (isPainted(x, y)) return 1 - y / (height * ratio);
        return null;
      });
    }""",
        [name, colour, places],
    )
    assert isinstance(found, list)
    return found


def test_every_plot_has_a_size_marks_a_name_and_words(shown: Page) -> None:
    drawn = shown.evaluate(DRAWN)
    assert [(plot["name"], plot["words"]) for plot in drawn] == [(plot.title, plot.words) for plot in plots()]
    for plot in drawn:
        assert plot["width"] > 500, plot
        assert plot["height"] > 40, plot
        assert plot["marks"] > (300 if plot["kind"] != "bars" else 1), plot


def test_hover_shows_the_values_of_a_point_with_their_units(shown: Page) -> None:
    at = 40
    words = hover(shown, "lines", at / SECONDS)
    assert words.startswith(f"2026-11-24 15:00:{at} UTC rising 100 ms ")
    assert words.endswith("500 µs")
    assert hover(shown, "stacked", 0.5) == "2026-11-24 15:00:30 UTC ok 20/s not ok 2.5/s"
    # Of 45 durations in a bucket, the fifth interval has 16; the fourth bucket counts each four times.
    assert hover(shown, "heat", 0.35, 1 - 4.5 / 8) == (
        "2026-11-24 15:00:15 UTC 16 ms … 32 ms 64 requests all in this time 180 requests"
    )
    assert hover(shown, "times", 5 / 8) == "32 ms duration 68.9 %"
    assert hover(shown, "bars", 0.5, 0.15, ".bars") == "/v1/chat input 4,000 tokens output 1,234 tokens"
    assert hover(shown, "dots", 0.5, 0.1, ".bars") == "ours p50 10 ms (9 ms … 20 ms)"


def test_a_finger_on_a_phone_reads_a_value_too(running: Page, written: Path) -> None:
    opened = running.context.browser
    assert opened is not None
    phone = opened.new_context(viewport={"width": PHONE, "height": 800}, has_touch=True, is_mobile=True).new_page()
    phone.goto(written.as_uri())
    plot = phone.locator("#plot-lines .u-over")
    box = plot.bounding_box()
    assert box is not None
    plot.tap(position={"x": box["width"] / 2, "y": 40})
    assert tip(phone, "lines").startswith("2026-11-24 15:00:30 UTC rising 31.6 ms ")
    phone.context.close()


def test_the_pointer_leaves_and_the_tip_is_gone(shown: Page) -> None:
    assert hover(shown, "lines", 0.5)
    shown.mouse.move(5, 5)
    assert tip(shown, "lines") == ""


def test_keys_read_the_values_out_as_text(shown: Page) -> None:
    shown.locator("#plot-lines .plot-area").focus()
    for key in ("Home", "ArrowRight", "ArrowRight"):
        shown.keyboard.press(key)
    spoken = shown.locator("#plot-lines [role=status]").inner_text()
    assert spoken == f"2026-11-24 15:00:02 UTC; rising 1.26 ms; {VISIBLE} 500 µs"
    shown.locator("#plot-heat .plot-area").focus()
    for key in ("End", "ArrowUp"):
        shown.keyboard.press(key)
    spoken = shown.locator("#plot-heat [role=status]").inner_text()
    assert spoken == "2026-11-24 15:00:45 UTC; 32 ms … 64 ms 80 requests; all in this time 450 requests"
    shown.locator("#plot-dots .plot-area").focus()
    shown.keyboard.press("End")
    assert shown.locator("#plot-dots [role=status]").inner_text() == "other; p50 1 s (900 ms … 1.1 s)"


def test_a_logarithmic_axis_draws_equal_ratios_at_equal_distances(shown: Page) -> None:
    places = [0.02, 1 / 3, 2 / 3, 0.98]
    logarithmic = heights(shown, "lines", "first", places)
    steps = [b - a for a, b in pairwise(logarithmic)]
    assert steps[1] == pytest.approx(steps[0] / 0.94, abs=0.03)
    shown.locator("#plot-lines").get_by_role("button", name="linear").click()
    linear = heights(shown, "lines", "first", places)
    assert linear[2] == pytest.approx(RISING[40] / (RISING[-1] * 1.05), abs=0.03)
    assert linear[1] < 0.05


def test_a_series_is_switched_off_and_on_by_its_entry(shown: Page) -> None:
    entry = shown.locator("#plot-lines .plot-legend button").nth(1)
    assert heights(shown, "lines", "second", [0.5])[0]
    entry.click()
    assert entry.get_attribute("aria-pressed") == "false"
    assert heights(shown, "lines", "second", [0.5]) == [None]
    assert "500 µs" not in hover(shown, "lines", 0.5)
    entry.click()
    assert heights(shown, "lines", "second", [0.5])[0]


def test_a_view_of_a_distribution_shows_the_share_that_took_longer(shown: Page) -> None:
    shown.locator("#plot-times").get_by_role("button", name="share that took longer").click()
    assert hover(shown, "times", 5 / 8) == "32 ms duration 31.1 %"
    assert shown.locator("#plot-times .plot").get_attribute("data-scale-y") == "log"


def test_a_drag_zooms_and_escape_shows_all_again(shown: Page) -> None:
    hover(shown, "lines", 0.25)
    shown.mouse.down()
    hover(shown, "lines", 0.75)
    shown.mouse.up()
    plot = shown.locator("#plot-lines .plot")
    assert plot.get_attribute("data-zoomed") == "true"
    assert hover(shown, "lines", 0.0).startswith("2026-11-24 15:00:15 UTC")
    shown.locator("#plot-lines .plot-area").focus()
    shown.keyboard.press("Escape")
    assert plot.get_attribute("data-zoomed") == "false"


def test_a_filter_leaves_the_rows_with_all_words(shown: Page) -> None:
    rows = shown.locator("tbody tr:visible th")
    shown.get_by_label("Filter rows").fill("ALPHA 10")
    assert rows.all_inner_texts() == ["alpha-10"]
    assert shown.locator(".filter [role=status]").inner_text() == "1 of 7 rows"
    shown.get_by_label("Filter rows").fill("")
    assert rows.count() == 7


def test_figures_are_sorted_by_what_they_say_and_names_by_their_numbers(shown: Page) -> None:
    head = shown.locator("thead th").nth(1)
    for order, expected in (
        ("descending", ["1,200 s", "2 s", "1.5 s", "12 ms", "900 µs", "70 ns", "–"]),
        ("ascending", ["70 ns", "900 µs", "12 ms", "1.5 s", "2 s", "1,200 s", "–"]),
    ):
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == order
        assert [text.split("\n")[0] for text in shown.locator("tbody td").all_inner_texts()] == expected
    shown.locator("thead th button").first.click()
    names = shown.locator("tbody th").all_inner_texts()
    assert [name for name in names if name != VISIBLE] == ["alpha-2", "alpha-10", "beta", "delta", "epsilon", "gamma"]


def test_text_and_marks_can_be_read_in_light_and_in_dark(shown: Page) -> None:
    is_readable(shown)


def test_a_change_of_scheme_repaints_what_is_drawn(shown: Page) -> None:
    for switch in ("the user's preference", "the button"):
        if switch == "the button":
            shown.locator("#theme").click()
        else:
            shown.emulate_media(color_scheme="dark")
        shown.wait_for_timeout(100)
        assert [plot["name"] for plot in shown.evaluate(DRAWN) if not plot["marks"]] == [], f"not repainted by {switch}"
    assert shown.locator("html").get_attribute("data-theme") == "light"


@pytest.mark.parametrize("width", [320, PHONE, DESK])
def test_no_width_scrolls_the_page_sideways_and_plots_follow_it(shown: Page, width: int) -> None:
    shown.set_viewport_size({"width": width, "height": 900})
    shown.wait_for_timeout(100)
    shown.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    wait_until_fits(shown)
    for plot in shown.evaluate(DRAWN):
        assert width * 0.7 < plot["width"] <= width, plot
    assert hover(shown, "lines", 0.99), "a plot that was resized still shows its values"
    box = shown.locator("#plot-lines .plot-tip").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width


@pytest.mark.parametrize(("width", "scheme"), [(PHONE, "dark"), (DESK, "light")])
def test_axe_finds_nothing(shown: Page, width: int, scheme: Literal["dark", "light"]) -> None:
    shown.set_viewport_size({"width": width, "height": 900})
    shown.emulate_media(color_scheme=scheme)
    hover(shown, "lines", 0.5)
    assert violations(shown) == []


def test_hostile_names_are_text_only(shown: Page) -> None:
    for name, part in (("lines", ".u-over"), ("bars", ".bars")):
        assert VISIBLE in hover(shown, name, 0.5, 0.5, part)
    assert shown.evaluate("window.hacked ?? null") is None
    assert shown.evaluate("document.querySelectorAll('img, iframe, link, main script:not([type])').length") == 0
    assert shown.evaluate("document.querySelectorAll('script:not([type])').length") == 2
    text = shown.evaluate("document.body.innerText")
    assert text.count(VISIBLE) >= 6
    assert "\u202e" not in text
    assert "\u202e" not in shown.title()


def test_the_page_asks_nothing_of_the_network_and_could_not(running: Page, written: Path) -> None:
    asked: list[str] = []
    running.on("request", lambda request: asked.append(request.url))
    running.goto(written.as_uri())
    running.wait_for_timeout(200)
    assert asked == [written.as_uri()]
    script = "Object.assign(document.createElement('script'), {src: 'data:text/javascript,1'})"
    # Each of these is answered where no policy forbids it, without a network.
    for attempt in (
        "fetch('data:text/plain,x')",
        f"new Promise((yes, no) => Object.assign(new Image(), {{onload: yes, onerror: no, src: '{DOT}'}}))",
        f"new Promise((yes, no) => document.body.append(Object.assign({script}, {{onload: yes, onerror: no}})))",
    ):
        refused = running.evaluate(f"({attempt}).then(() => false, () => true)")
        assert refused is True, attempt
    running.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<b style=\"color:red\" onclick=\"window.h=1\">x</b>')"
    )
    running.evaluate("document.body.lastElementChild.click()")
    assert running.evaluate("window.h ?? null") is None
    assert running.evaluate("getComputedStyle(document.body.lastElementChild).color") != "rgb(255, 0, 0)"


def test_without_scripts_words_and_tables_are_there(running: Page, written: Path) -> None:
    opened = running.context.browser
    assert opened is not None
    plain = opened.new_context(java_script_enabled=False).new_page()
    plain.goto(written.as_uri())
    text = plain.locator("body").inner_text()
    assert [plot.words for plot in plots() if plot.words not in text] == []
    assert "1.5 s" in text
    assert plain.locator("tbody tr:visible").count() == 7
    assert plain.locator("button").count() == 0
    plain.context.close()


def test_a_script_in_a_page_ends_where_it_should() -> None:
    for script in page.scripts():
        assert not re.search(r"</script|<!--", script, re.IGNORECASE)
    source = body_of(sample())
    assert not re.search(r"<script>|<img|<b>", source)
    written = re.findall(r'<script type="application/json">(.*?)</script>', source)
    assert len(written) == source.count("<script") == len(plots())
    assert all(json.loads(data)["label"] for data in written), "a name ended its element"


@pytest.fixture(scope="module")
def modules(running: Page) -> Page:
    """Return a page with the modules of plots as globals and an empty element."""
    running.goto("about:blank")
    running.set_content("<div id=here></div>")
    library = page.scripts()[0]
    running.add_script_tag(content=library)
    running.add_script_tag(content=page.joined("plots"))
    return running


def test_numbers_have_three_digits_and_the_unit_that_fits(modules: Page) -> None:
    expected = {
        (0.0123, "s"): "12.3 ms",
        (86400, "s"): "86,400 s",
        (4.2e-8, "s"): "42 ns",
        (1536, "B"): "1.5 KiB",
        (17, "B"): "17 B",
        (1234567, "{token}"): "1,234,567 tokens",
        (1, "{token}"): "1 token",
        (31.25, "{token}/s"): "31.3 tokens/s",
        (12345.6, "1/s"): "12.3 k/s",
        (7, "%"): "7 %",
        (0.125, "ratio"): "12.5 %",
        (1.05, "x"): "1.05×",
        (1234567, "1"): "1,234,567",
        (None, "s"): "–",
    }
    found = modules.evaluate(
        "pairs => pairs.map(pair => module_format.format(...pair))", [list(key) for key in expected]
    )
    assert found == list(expected.values())


@pytest.mark.parametrize(
    ("low", "high", "labeled"),
    [
        (0.0168, 0.024, [0.018, 0.02, 0.022, 0.024]),
        (0.0016, 0.07, [0.002, 0.005, 0.01, 0.02, 0.05]),
        (0.001, 1, [0.001, 0.01, 0.1, 1]),
    ],
)
def test_a_logarithmic_axis_has_labels_that_do_not_touch_and_more_than_one(
    modules: Page, low: float, high: float, labeled: list[float]
) -> None:
    found = modules.evaluate("([low, high]) => module_plot_axes.logTicks(low, high, 6)", [low, high])
    assert found == pytest.approx(labeled)


def test_times_are_written_as_tables_have_them(modules: Page) -> None:
    values = [mantissa * 10**power for power in range(-6, 6) for mantissa in (1, 1.25, 4.567, 9.99)]
    found = modules.evaluate("values => values.map(value => module_format.format(value, 's'))", values)
    assert found == list(map(duration_text, values))


def test_what_is_unsafe_to_show_is_the_same_in_both_languages(modules: Page) -> None:
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x10000), 0xE0001, 0xE007F, 0x1F600]))
    found = modules.evaluate("text => module_format.safe(text)", every)
    assert "\\u202e" in found
    assert found == safe(every)


def test_a_selection_is_handed_over_in_units_of_the_data(modules: Page) -> None:
    modules.evaluate(
        """([begin, seconds]) => { window.chosen = null;
      const x = Array.from({length: seconds + 1}, (_, i) => begin + i);
      window.handle = module_plots.draw('lines', document.getElementById('here'), {x, unit: 's', label: 'Chosen',
        series: [{name: 'a', values: x.map(() => 1)}], onSelect: (from, to) => { window.chosen = [from, to]; }}); }""",
        [BEGIN_S, SECONDS],
    )
    box = modules.locator(".u-over").bounding_box()
    assert box is not None
    modules.mouse.move(box["x"] + box["width"] / 3, box["y"] + 50)
    modules.mouse.down()
    modules.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60, steps=3)
    modules.mouse.up()
    assert modules.evaluate("chosen") == pytest.approx([BEGIN_S + 20, BEGIN_S + 30], abs=0.2)
    modules.locator(".plot-area").focus()
    for key in ("Home", "Shift+ArrowRight", "Shift+ArrowRight", "Enter"):
        modules.keyboard.press(key)
    assert modules.evaluate("chosen") == [BEGIN_S, BEGIN_S + 2]


def test_an_update_keeps_the_zoom_and_a_destroyed_plot_leaves_nothing(modules: Page) -> None:
    zoomed = modules.evaluate(
        """async () => { const x = [0, 1, 2, 3, 4], here = document.getElementById('here');
      const data = {x, unit: 's', xUnit: 's', series: [{name: 'a', values: x}]};
      const plot = module_plots.draw('lines', here, data);
      plot.plot.setScale('x', {min: 1, max: 3});
      await new Promise(requestAnimationFrame);
      plot.update({...data, series: [{name: 'a', values: [5, 4, 3, 2, 1]}]});
      await new Promise(requestAnimationFrame);
      const found = [plot.plot.scales.x.min, plot.plot.scales.x.max, plot.plot.data[1][0]];
      plot.destroy();
      return [...found, here.childElementCount]; }"""
    )
    assert zoomed == [1, 3, 5, 0]


def test_a_plot_without_values_says_so(modules: Page) -> None:
    for kind, data in {
        "lines": "{x: [], series: []}",
        "distribution": "{series: []}",
        "bars": "{labels: [], series: []}",
        "heatmap": "{x: [], edges: [1, 2], cells: []}",
    }.items():
        draw = f"module_plots.draw('{kind}', document.getElementById('here'), {data})"
        words = modules.evaluate(f"() => {{ {draw}; return document.getElementById('here').innerText; }}")
        assert words.strip() == "No data.", kind
