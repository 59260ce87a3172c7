"""Draws docs/figures/stalled-copy.png: the status page of a real sidecar that watches native copies; one is stalled.

    python -m docs.record_stalled_copy

It needs Chromium and its driver, as the browser tests do.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import nats
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.settings import Settings
from nats_conformance.native_servers import NativeServer

PICTURE = Path(__file__).parent / "figures" / "stalled-copy.png"
_WIDTH, _LIMIT = 1100, 120  # pixels; seconds
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={_WIDTH},900")


async def _streams(url: str) -> None:
    client = await nats.connect(url)

    async def asked(request: str, config: dict[str, Any]) -> None:
        answer = json.loads((await client.request(f"$JS.API.{request}", json.dumps(config).encode(), timeout=60)).data)
        if "error" in answer:
            raise RuntimeError(f"{request}: {answer['error']['description']}")

    for name, config in (
        ("ORDERS", {"subjects": ["orders.>"]}),
        ("ORDERS_WEST", {"mirror": {"name": "ORDERS"}}),
        ("ARCHIVE", {"sources": [{"name": "ORDERS"}], "max_msgs": 10, "discard": "new"}),
    ):
        await asked(f"STREAM.CREATE.{name}", {"name": name, "storage": "memory", **config})
    for number in range(15):
        await client.jetstream().publish(f"orders.eu.{number}", b"3 pears", timeout=60)
    await client.close()


def _draw(address: str) -> None:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    for flag in _FLAGS:
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.get(f"http://{address}/#open=mirrors")
        WebDriverWait(driver, _LIMIT).until(lambda _: driver.find_elements(By.CSS_SELECTOR, ".copies li.stalled"))
        height = driver.execute_script("return document.querySelector('.pair').offsetTop")
        driver.set_window_size(_WIDTH, height)
        size = {"width": _WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.save_screenshot(str(PICTURE))
    finally:
        driver.quit()


async def main() -> None:
    """Plant the stall, and draw."""
    async with NativeServer("2.15.3") as server:
        await _streams(server.url)
        rule = {"name": "mirrors", "kind": "watch", "interval": 0.5, "stalled_after": 3}
        settings = {
            "connections": {"default": {"servers": [server.url]}},
            "http": {"listen": "127.0.0.1:0"},
            "rules": [rule],
        }
        sidecar = Sidecar(Settings.model_validate(settings))
        await sidecar.start()
        try:
            assert sidecar.http is not None
            host, port = sidecar.http
            await asyncio.to_thread(_draw, f"{host}:{port}")
        finally:
            await sidecar.stop()


if __name__ == "__main__":
    asyncio.run(main())
