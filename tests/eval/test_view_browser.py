"""The viewer in a real browser over a real server: keys, links, progress, hostile text, contrast, width."""

import shutil

import pytest

from tests.eval.synthetic import RunWriter, toy_groups
from tests.eval.viewing import serving

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (make setup-dev)")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs chromium (apt-get install chromium)")
PAGES = ("/", "/runs/alpha?methods=grpo&u=1&i=2", "/step/alpha?u=1&i=2&t=0", "/compare?run=alpha&run=beta")
PATIENCE = 120_000  # ms; only how long a stuck page may hold up the tests


@pytest.fixture(scope="module")
def address(root):
    with serving(root) as where:
        yield where


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, address):
    """Opens addresses of the viewer; at the end no page may have complained or asked anyone else."""
    contexts, complaints, requests = [], [], []

    def opened(path, **options):
        context = chromium.new_context(**options)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address + path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
    assert all(url.startswith((address, "data:")) for url in requests)


def heading(page):
    return page.locator("#detail .meta").first.inner_text()


def test_keys_move_through_trajectories_and_steps(open_page):
    page = open_page("/runs/alpha")
    links = [link.get_attribute("href") for link in page.locator("[data-entry]").all()]
    assert len(links) == 32
    page.keyboard.press("j")
    page.wait_for_url("**" + links[1])
    assert page.locator("[data-entry][aria-current]").get_attribute("href") == links[1]
    page.keyboard.press("j")
    page.wait_for_url("**" + links[2])
    page.keyboard.press("k")
    page.wait_for_url("**" + links[1])
    page.keyboard.press("n")
    page.keyboard.press("n")
    assert page.locator(".stepline.marked").get_attribute("id") == "t1"
    page.keyboard.press("p")
    assert page.locator(".stepline.marked").get_attribute("id") == "t0"
    page.keyboard.press("o")
    page.wait_for_selector(".stepline.marked .tokens")
    page.go_back()
    page.wait_for_url("**" + links[2])


def test_search_filters_and_help(open_page):
    page = open_page("/runs/alpha")
    page.keyboard.press("/")
    page.keyboard.type("zebra")
    page.wait_for_selector("text=None fits these filters")
    assert page.evaluate("document.activeElement.name") == "q"
    for _ in "zebra":
        page.keyboard.press("Backspace")
    page.wait_for_selector("[data-entry]")
    page.keyboard.press("Escape")
    page.locator("select[name=outcome]").select_option("failure")
    page.wait_for_url("**outcome=failure*")
    page.wait_for_selector("text=of 32 trajectories")
    assert page.locator(".entries .won").count() == 0
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()


def test_a_deep_link_and_the_step_it_matched(open_page):
    page = open_page("/runs/alpha?sort=credited")
    match = page.locator(".stepline .match").first
    step, text = match.evaluate("link => link.closest('.stepline').id"), match.inner_text()
    page = open_page(f"/runs/alpha?sort=credited#{step}")
    assert page.locator(".stepline.marked").get_attribute("id") == step
    page.keyboard.press("m")
    t, index = text.split()[2], text.split("#")[1].split()[0]
    page.wait_for_selector(f".siblings [aria-current]:has-text('#{index}')")
    assert page.locator(".stepline.marked").get_attribute("id") == f"t{t}"
    assert "success" in heading(page)


def test_methods_are_chosen_on_the_page(open_page):
    page = open_page("/runs/alpha?u=1&i=2")
    page.locator(".methods > summary").click()
    page.locator("input[value=gigpo]").click()
    page.wait_for_url("**methods=gigpo*")
    page.wait_for_selector(".cells [data-m=gigpo]")
    assert page.locator(".strips > span").first.inner_text() == "recorded"


def test_hostile_text_does_nothing(open_page):
    for path in ("/runs/alpha?u=1&i=0", "/step/alpha?u=1&i=0&t=0"):
        page = open_page(path)
        assert "window.spoiled = 1" in page.locator("main").inner_text()
        assert page.evaluate("window.spoiled") is None
        if path.startswith("/runs"):
            page.locator(".more > summary").first.click()
            page.wait_for_selector(".tokens")
            assert page.evaluate("window.spoiled") is None


def test_progress_is_live(open_page, root):
    run = RunWriter(root / "live", overrides=["train.updates=4"])
    page = open_page("/")
    page.locator("input[value=beta]").check()
    assert "0 of 4 updates" in page.locator("#runs").inner_text()
    run.update(1, toy_groups(1))
    page.wait_for_selector("text=1 of 4 updates")
    assert page.locator("input[value=beta]").is_checked()


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("look", [{}, {"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 844}}])
def test_contrast_names_and_width(open_page, path, look):
    """axe finds nothing (contrast AA, names, roles, keyboard), and nothing is wider than the screen."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_page(path, **look)
    found = axe.run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
