"""The frame of the report: one HTML page with its style sheet, without scripts and references to other files."""

from __future__ import annotations

from rths_nodes.core.version import __version__

CSS = """
:root{--face:"DejaVu Sans",Verdana,"Segoe UI",Helvetica,Arial,sans-serif;
--ink:#1a1a1a;--soft:#5a6068;--line:#dde1e6}
*{box-sizing:border-box}
body{margin:0 auto;max-width:60rem;padding:1.6rem 1.2rem 3rem;color:var(--ink);background:#fff;
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif}
h1{font-size:1.7rem;line-height:1.2;margin:0;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:2.4rem 0 .7rem;padding-bottom:.25rem;border-bottom:2px solid var(--ink)}
h3{font-size:1rem;margin:0 0 .35rem;font-weight:600}
.line{display:flex;flex-wrap:wrap;align-items:center;gap:.5rem 1rem;justify-content:space-between}
.badge{padding:.2rem .8rem;border-radius:1rem;color:#fff;font-weight:600;letter-spacing:.02em;
-webkit-print-color-adjust:exact;print-color-adjust:exact}
.badge.good{background:#1a7f37}.badge.bad{background:#b3261e}.badge.unknown{background:#6b7280}
.about{margin:.35rem 0 0;color:var(--soft);overflow-wrap:anywhere}
.reason{margin:.9rem 0 0;padding:.5rem .8rem;border-left:4px solid #6b7280;background:#f4f5f7;
overflow-wrap:anywhere}
.reason.bad{border-color:#b3261e;background:#fdf1f0}
.summary{font-size:1.12rem;margin:1.1rem 0}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(12.5rem,1fr));gap:.6rem 1.4rem;margin:0;
padding:.9rem 0;border-top:1px solid var(--line);border-bottom:1px solid var(--line)}
dt{font-size:.75rem;color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:baseline;padding:.32rem .9rem .32rem 0;
border-bottom:1px solid var(--line)}
tbody th{font-weight:500}thead th{font-size:.8rem;color:var(--soft);font-weight:500}
.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}td.n{font-weight:600}
td.mid{text-align:center}
.indices tbody th{white-space:nowrap}.why{color:var(--soft);font-size:.82rem;line-height:1.35;min-width:15rem}
figure{margin:0 0 2rem;break-inside:avoid}
figure svg{display:block;width:100%;height:auto;min-width:34rem}
figcaption{color:var(--soft);font-size:.86rem}
.no{display:inline-block;min-width:1.5em;color:var(--soft);font-weight:400}
details{margin:.5rem 0}summary{cursor:pointer}
pre{overflow-x:auto;font-size:.8rem;line-height:1.4;background:#f6f7f9;padding:.8rem;border-radius:.3rem}
footer{margin-top:2.5rem;color:var(--soft);font-size:.8rem}
@media (max-width:40rem){body{padding:1rem .8rem 2rem}h1{font-size:1.35rem}
.facts{grid-template-columns:repeat(2,1fr)}.indices tbody th{white-space:normal}}
@media print{@page{margin:14mm}body{max-width:none;padding:0;font-size:9.5pt}.wide{overflow:visible}
.summary{font-size:1.05em;margin:.7rem 0}.facts{gap:.3rem 1rem;padding:.5rem 0}th,td{padding-block:.2rem}
h2{margin-top:1.3rem}figure{margin-bottom:1.2rem}
figure svg{min-width:0}h2,h3{break-after:avoid}tr{break-inside:avoid}}
""".strip()

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
{body}
<footer>Written by rths_nodes {version}.</footer>
</body>
</html>
"""


def framed(title: str, body: str) -> str:
    """The page around ``body``; both are HTML."""
    return PAGE.format(title=title, style=CSS, body=body, version=__version__)
