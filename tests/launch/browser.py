"""Pages in a headless browser: what a script on them has made of the page in the end."""

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
needed = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")


def dom(address: str, width: int = 1280, milliseconds: int = 20_000) -> str:
    """The page as it is when its scripts and timers have run for so long, in the page's own time."""
    words = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"--window-size={width},2000"]
    words += [f"--virtual-time-budget={milliseconds}", address]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def written(page: Path, script: str, into: Path, fragment: str = "", width: int = 1280) -> str:
    """What a script that runs after the page's own ones puts into `out`."""
    tail = f"<pre id='out'></pre><script>let out; {script}; document.getElementById('out').textContent = out;</script></body>"
    into.write_text(page.read_text().replace("</body>", tail))
    found = re.search(r"<pre id=\"out\">(.*?)</pre>", dom(f"file://{into}{fragment}", width), re.DOTALL)
    assert found
    return html.unescape(found[1])
