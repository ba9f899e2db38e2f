"""Drive Chromium through the pages: ``browse.py URL TOKEN FOLDER``; prints what was seen as JSON. Needs Selenium alone."""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import Any

from selenium import webdriver
from selenium.webdriver.common.by import By
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
    "--window-size=1200,800",
)


def browse(url: str, token: str, folder: str) -> dict[str, object]:
    """Sign in, recall, use the keys, retract, and wait for an entry that comes while the page is open."""
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={folder}/profile"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    try:
        return seen_by(chrome, url, token)
    finally:
        chrome.quit()


def seen_by(chrome: webdriver.Chrome, url: str, token: str) -> dict[str, object]:
    """What each step shows."""
    wait = WebDriverWait(chrome, 30)
    seen: dict[str, Any] = {}
    titles = []
    chrome.get(f"{url}/ui/recall?query=why+was+the+deploy+denied")
    chrome.find_element(By.NAME, "token").send_keys(token)
    chrome.find_element(By.CSS_SELECTOR, "main button").click()
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
