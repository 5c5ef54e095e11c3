#!/usr/bin/env python3
"""The page that --status serves, in a browser: check_status_page.py LONGHAUL MODEL --mpiexec WORDS... [--pictures FOLDER]

While a job of two ranks is held, Debian's Chromium loads its page: the page's own rules (Content-Security-Policy) let its style and its script run, and
nothing is missing. Then what was served is laid out in windows of a phone, a tablet and a desk, light and dark: nothing is wider than its window, and words
are told from what is behind them (contrast of 4.5 and more, as WCAG asks). --pictures keeps a picture of each for people to look at.
"""
import html
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from check_status import Job, Reader, check, stop_while_it_runs, write_inputs

BROWSER = shutil.which("chromium")
WINDOWS = {"phone": (390, 1700), "tablet": (820, 1300), "desk": (1440, 1000)}
SCHEMES = {"dark": 0, "light": 1}  # Blink's numbers

# Laid out in a frame, since a window has a least width. What is found goes into the title, which dumps show.
MEASURE = """<!doctype html><title>nothing</title><body style="margin: 0"><iframe width="{width}" height="{height}" style="border: 0" srcdoc="{page}"></iframe><script>
const channels = (color) => color.match(/[\\d.]+/g).map(Number);
const luminance = (color) => channels(color).slice(0, 3).map((c) => c / 255)
  .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
function behind(element) {{
  for (let at = element; at; at = at.parentElement) {{
    const color = getComputedStyle(at).backgroundColor, alpha = channels(color)[3];
    if (alpha === undefined || alpha > 0) return color;
  }}
  return "rgb(255, 255, 255)";
}}
onload = () => {{
  const page = document.querySelector("iframe").contentDocument, wide = [];
  let least = [99, ""];
  for (const element of page.body.querySelectorAll("*")) {{
    const box = element.getBoundingClientRect();
    if (box.width > 0 && box.right > {width} + 0.5) wide.push(element.tagName + " " + element.textContent.slice(0, 30));
    if (box.width === 0 || ![...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
    const [a, b] = [luminance(getComputedStyle(element).color), luminance(behind(element))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < least[0]) least = [contrast, element.textContent.trim().slice(0, 30)];
  }}
  document.title = JSON.stringify({{scroll: page.documentElement.scrollWidth, wide, least, back: getComputedStyle(page.body).backgroundColor}});
}};
</script>"""


def browse(scheme, *words):
    """What Chromium writes: (standard output, its own messages)."""
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", f"--user-data-dir={profile}",
                               f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", "--enable-logging=stderr", "--virtual-time-budget=6000", *words],
                              capture_output=True, text=True, timeout=240)
    check(done.returncode == 0, f"chromium ends with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout, done.stderr


def check_loaded(address):
    dom, messages = browse("light", "--dump-dom", address)
    check("Time left" in dom and "<h2>Documents" in dom, f"the page shows the job: {dom[-3000:]}")
    check(not re.search(r'<body class="[^"]*lost', dom), "it hears of the job again and again")
    said = [line for line in messages.splitlines() if "CONSOLE" in line]
    check(not said, f"nothing is refused or missing: {said}")


def check_laid_out(page, name, scheme, folder):
    width, height = WINDOWS[name]
    # The frame has no server whose rules its nonces would be of, and nobody to ask again.
    still = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    file = folder / f"{name}-{scheme}.html"
    file.write_text(MEASURE.format(width=width, height=height, page=html.escape(still)))
    dom, _ = browse(scheme, "--dump-dom", file.as_uri())
    found = json.loads(html.unescape(re.search(r"<title>(.*?)</title>", dom, re.S)[1]))
    print(f"{name}, {scheme}: {found['scroll']} of {width} wide, least contrast {found['least'][0]:.1f} ({found['least'][1]})")
    check(found["scroll"] <= width and not found["wide"], f"{name} is wide enough: {found}")
    check(found["least"][0] >= 4.5, f"words are told from what is behind them: {found}")
    return found["back"]


def main():
    program, model = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    if BROWSER is None or "--mpiexec" not in sys.argv:
        print("SKIPPED: needs mpirun, and Chromium (Debian's chromium)")
        return
    launcher = sys.argv[sys.argv.index("--mpiexec") + 1 :]
    pictures = None
    if "--pictures" in launcher:
        pictures = pathlib.Path(launcher.pop(launcher.index("--pictures") + 1))
        launcher.remove("--pictures")
        pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_inputs(folder, model)
        job = Job(program, model, folder, "watched", "--status", "0", launcher=[*launcher, "2"])
        try:
            host, port, _ = job.address()
            reader = Reader(host, port)
            stop_while_it_runs(job, reader)
            address = f"http://localhost:{port}/"
            check_loaded(address)
            page = reader.get("/")[1]
            backs = {(name, scheme): check_laid_out(page, name, scheme, folder) for name in WINDOWS for scheme in SCHEMES}
            check(all(backs[name, "dark"] != backs[name, "light"] for name in WINDOWS), f"dark is another color than light: {backs}")
            for name in WINDOWS if pictures else ():
                for scheme in SCHEMES:
                    browse(scheme, f"--window-size={WINDOWS[name][0]},{WINDOWS[name][1]}", f"--screenshot={pictures}/{name}-{scheme}.png",
                           (folder / f"{name}-{scheme}.html").as_uri())
            job.signal_rank_1(signal.SIGCONT)
            check(len(job.answers()) == 24, "the job ends with all answers")
        finally:
            job.signal_rank_1(signal.SIGCONT)
            job.process.kill()
            job.process.wait()
    print("status page: loaded and laid out")


if __name__ == "__main__":
    main()
