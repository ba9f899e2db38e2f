"""Drive Chromium through the pages: ``browse.py URL TOKEN FOLDER``; prints what was seen as JSON. Needs Selenium alone.

With a file ``axe.min.js`` in the folder, every page is checked by axe-core.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1440,900",
)


PATHS = [
    "/",
    "/ui/recall?query=longest",
    "/ui/documents",
    "/ui/learned",
    "/ui/people",
    "/ui/facts",
    "/ui/runs",
    "/ui/status",
    "/ui/sign-ins",
]
WORDS = "correct horse battery staple"


def browse(url: str, token: str, folder: str) -> dict[str, object]:
    """Sign in, recall, use the keys, retract, and wait for an entry that comes while the page is open."""
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={folder}/profile"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    try:
        seen = seen_by(chrome, url, token)
        seen |= by_keyboard(chrome, url)
        axe = Path(folder) / "axe.min.js"
        if axe.exists():
            seen["barriers"] = barriers(chrome, url, axe.read_text())
        return seen | by_name(chrome, url, axe.read_text() if axe.exists() else None)
    finally:
        chrome.quit()


def seen_by(chrome: webdriver.Chrome, url: str, token: str) -> dict[str, object]:
    """What each step shows."""
    wait = WebDriverWait(chrome, 30)
    seen: dict[str, Any] = {}
    titles = []
    chrome.get(f"{url}/ui/recall?query=why+was+the+deploy+denied")
    chrome.find_element(By.NAME, "token").send_keys(token + Keys.ENTER)
    wait.until(lambda c: c.find_elements(By.CSS_SELECTOR, ".hits li"))
    titles.append(chrome.title)
    seen["recalled"] = [hit.text for hit in chrome.find_elements(By.CSS_SELECTOR, ".hits li > a")]
    keys(chrome, "gj")
    wait.until(lambda c: c.current_url.endswith("/journal"))
    seen["by_key"] = chrome.current_url
    wait.until(lambda c: c.find_elements(By.CSS_SELECTOR, ".entries tbody tr"))
    titles.append(chrome.title)
    keys(chrome, "/")
    seen["focused_by_slash"] = chrome.switch_to.active_element.get_attribute("name")
    for entry in ("hostile", "denied"):
        chrome.get(f"{url}/ui/entry/{entry}")
        titles.append(chrome.title)
    retract = chrome.find_element(By.CSS_SELECTOR, 'form[action$="/do/retract"]')
    retract.find_element(By.NAME, "reason").send_keys("only a drill")
    retract.find_element(By.TAG_NAME, "button").click()
    wait.until(lambda c: c.find_elements(By.CSS_SELECTOR, "main > .mark"))
    seen["retracted"] = chrome.find_element(By.CSS_SELECTOR, "main > .mark").text
    chrome.get(url)
    append(url, token)
    wait.until(lambda c: "while you watch" in c.find_element(By.ID, "now").text)
    seen["came_by_itself"] = True
    titles.append(chrome.title)
    chrome.get(f"{url}/docs")
    chrome.find_element(By.ID, "token").send_keys(token)
    form = chrome.find_element(By.CSS_SELECTOR, 'form[data-method="POST"][data-path="/v1/journal"]')
    form.find_element(By.TAG_NAME, "button").click()
    wait.until(lambda c: form.find_element(By.TAG_NAME, "pre").text.startswith("2"))
    seen["sent_from_docs"] = form.find_element(By.TAG_NAME, "pre").text
    for path in ("/", "/ui/journal", "/ui/recall?query=longest", "/ui/entry/long", "/docs"):
        chrome.get(f"{url}{path}")
        seen["wider"] = chrome.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
        if seen["wider"] > 0:
            break
    seen["titles"] = titles
    logged = [line["message"] for line in chrome.get_log("browser") if line["level"] == "SEVERE"]
    seen["violations"] = [message for message in logged if "Content Security Policy" in message]
    return seen


def by_keyboard(chrome: webdriver.Chrome, url: str) -> dict[str, Any]:
    """Settle, approve, correct, look why, export, erase and verify, with the Tab and Enter keys and letters alone."""
    wait = WebDriverWait(chrome, 60)
    seen: dict[str, Any] = {}
    chrome.get(url)
    wait.until(lambda c: c.find_elements(By.CSS_SELECTOR, 'form[action$="/do/relate"]'))
    press(chrome, 'form[action$="/do/relate"] button')
    wait.until(lambda c: not c.find_elements(By.CSS_SELECTOR, 'form[action$="/do/relate"]'))
    seen["settled"] = True
    press(chrome, 'form[action$="/do/approve_proposal"] button')
    wait.until(lambda c: "Learned lately" in c.page_source)
    seen["approved"] = True
    chrome.get(f"{url}/ui/recall?query=blue+badge")
    press(chrome, ".hits summary")
    press(chrome, 'form[action$="/do/correct"] input[name="text"]', "Tom has the green badge" + Keys.ENTER)
    wait.until(lambda c: "Tom has the green badge<" in c.page_source)
    press(chrome, '.hits a[href*="/why/"]')
    wait.until(lambda c: "/why/" in c.current_url)
    seen["why"] = chrome.find_element(By.TAG_NAME, "main").text
    chrome.get(f"{url}/ui/people")
    press(chrome, 'form[action$="/erase"] input[name="subject"]', "tom@example")
    press(chrome, 'form[action$="/erase"] input[name="reason"]', "he asked" + Keys.ENTER)
    wait.until(lambda c: c.find_elements(By.CSS_SELECTOR, "button.danger"))
    seen["plan"] = chrome.find_element(By.TAG_NAME, "main").text
    press(chrome, "button.danger")
    wait.until(lambda c: c.current_url.endswith("/people"))
    chrome.get(f"{url}/ui/status")
    wait.until(lambda c: _verified(c))
    seen["verified"] = chrome.find_element(By.ID, "now").text
    chrome.set_window_size(390, 800)
    seen["wider_on_a_phone"] = []
    for path in PATHS:
        chrome.get(f"{url}{path}")
        if chrome.execute_script("return document.documentElement.scrollWidth - window.innerWidth") > 0:
            seen["wider_on_a_phone"].append(path)
    return seen


def by_name(chrome: webdriver.Chrome, url: str, axe: str | None) -> dict[str, Any]:
    """Invite a person, open the link at the width of a phone, set a password, and sign in by name; by keyboard alone."""
    wait = WebDriverWait(chrome, 60)
    seen: dict[str, Any] = {"forms_wider_on_a_phone": [], "barriers_of_forms": []}

    def look(what: str) -> None:
        if chrome.execute_script("return document.documentElement.scrollWidth - window.innerWidth") > 0:
            seen["forms_wider_on_a_phone"].append(what)
        if axe is not None:
            seen["barriers_of_forms"] += [f"{what}: {found}" for found in barriers_here(chrome, axe)]

    chrome.set_window_size(390, 800)
    chrome.get(f"{url}/ui/sign-ins")
    press(chrome, 'form[action$="/do/invite_person"] input[name="person"]', "maria" + Keys.ENTER)
    link = wait.until(lambda c: c.find_element(By.CSS_SELECTOR, "input[readonly]")).get_attribute("value")
    look("invited")
    chrome.get(url)
    press(chrome, 'form[action$="/logout"] button')
    wait.until(lambda c: c.find_elements(By.NAME, "token"))
    look("sign in")
    chrome.get(link)
    look("link")
    press(chrome, 'input[name="password"]', WORDS)
    press(chrome, 'input[name="again"]', WORDS + Keys.ENTER)
    wait.until(lambda c: c.find_elements(By.CSS_SELECTOR, ".who a"))
    seen["joined_as"] = chrome.find_element(By.CSS_SELECTOR, ".who a").text
    chrome.get(link)
    seen["link_again"] = chrome.find_element(By.TAG_NAME, "main").text
    chrome.get(url)
    press(chrome, 'form[action$="/logout"] button')
    wait.until(lambda c: c.find_elements(By.NAME, "name"))
    press(chrome, 'input[name="name"]', "maria")
    press(chrome, 'input[name="password"]', WORDS + Keys.ENTER)
    wait.until(lambda c: c.find_elements(By.CSS_SELECTOR, ".who a"))
    press(chrome, ".who a")
    wait.until(lambda c: c.find_elements(By.CSS_SELECTOR, 'form[action$="/password"]'))
    seen["signed_in_as"] = chrome.find_element(By.CSS_SELECTOR, ".who a").text
    look("sign-ins of a person")
    return seen


def _verified(chrome: webdriver.Chrome) -> bool:
    """Whether the last verify found the views equal; starts one if none runs (an erasure may hold it up)."""
    text = chrome.page_source
    if "equal a fresh rebuild" in text:
        return True
    if "of" not in text or not chrome.find_elements(By.TAG_NAME, "progress"):
        buttons = chrome.find_elements(By.CSS_SELECTOR, 'form[action$="/do/verify"] button')
        if buttons:
            buttons[0].send_keys(Keys.ENTER)
        else:
            chrome.back()
    return False


def press(chrome: webdriver.Chrome, css: str, text: str = Keys.ENTER) -> None:
    """Move the focus to the first match with the Tab key, then type."""
    chrome.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    wanted = WebDriverWait(chrome, 30).until(lambda c: c.find_element(By.CSS_SELECTOR, css))
    for _ in range(400):
        ActionChains(chrome).send_keys(Keys.TAB).perform()
        if chrome.switch_to.active_element == wanted:
            ActionChains(chrome).send_keys(text).perform()
            return
    raise AssertionError(f"the Tab key never reaches {css}")


def barriers(chrome: webdriver.Chrome, url: str, axe: str) -> list[str]:
    """What axe-core finds that is serious or critical."""
    found = []
    chrome.set_window_size(1_440, 900)
    for path in (*PATHS, "/ui/receipts", "/ui/entry/denied", "/ui/why/denied"):
        chrome.get(f"{url}{path}")
        found += [f"{path}: {barrier}" for barrier in barriers_here(chrome, axe)]
    return found


def barriers_here(chrome: webdriver.Chrome, axe: str) -> list[str]:
    """What axe-core finds on the open page that is serious or critical."""
    chrome.execute_script(axe)
    run = "const done = arguments[0]; axe.run().then((r) => done(r.violations.map((v) => `${v.impact} ${v.id}`)))"
    return [one for one in chrome.execute_async_script(run) if one.startswith(("serious", "critical"))]


def keys(chrome: webdriver.Chrome, text: str) -> None:
    """Type where the focus is."""
    chrome.find_element(By.TAG_NAME, "body").send_keys(text)


def append(url: str, token: str) -> None:
    """An entry that comes while the page is open."""
    body = json.dumps({"entry_type": "run.completed", "summary": "It came while you watch"}).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/journal", body, headers)) as answer:
        assert answer.status == 201


if __name__ == "__main__":
    print(json.dumps(browse(*sys.argv[1:4])))
