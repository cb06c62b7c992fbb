"""Structured documents in many notations, each a headed block between fences, with invented and ever different values.

No name in them is anybody's: people are roles with numbers, hosts end in ``.example``, addresses are of the ranges kept
for documentation.
"""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from benchmarks.texts_random import Source

START = datetime(2021, 3, 1, 6, 0)
SYLLABLES = ("bal", "cor", "dun", "fen", "gra", "hol", "ket", "lor", "mar", "nel", "ost", "pel", "quor", "ras", "sil")
GOODS = (
    *("hex bolt", "cable gland", "ball valve", "air filter", "pipe clamp", "paint roller", "drill bit", "seal kit"),
    *("fuse link", "hose reel", "spring washer", "label roll", "bearing puller", "contact cleaner", "work glove"),
    *("grease cartridge", "cutting disc", "mesh screen", "level probe", "thermal paste", "tie rod", "drip tray"),
    *("lamp socket", "sanding belt", "check valve", "wire brush", "anchor plate", "rope thimble", "dust cap"),
)
UNITS = ("bar", "degC", "mm", "l/min", "kW", "rpm", "V", "mA", "ppm", "lux", "dB", "kg")
STATES = ("queued", "running", "done", "failed", "held", "cancelled", "retried", "expired")
SERVICES = ("ledger", "intake", "router", "catalog", "mailer", "archive", "billing", "scanner", "planner", "gateway")
VERBS = ("accepted", "rejected", "flushed", "rotated", "retried", "merged", "expired", "opened", "closed", "reindexed")
NOUNS = ("record", "segment", "session", "lease", "cursor", "shard", "upload", "invoice", "checkpoint", "certificate")
COLOURS = ("amber", "slate", "teal", "ochre", "ivory", "crimson", "olive", "navy", "copper", "lilac")


class Writer:
    """One kind of document a method; all draw from one source."""

    def __init__(self, source: Source) -> None:
        self.s = source

    def name(self, parts: int = 2) -> str:
        """An invented proper name."""
        return "".join(self.s.pick(SYLLABLES) for _ in range(parts)).capitalize()

    def day(self) -> datetime:
        """A moment within five years."""
        return START + timedelta(seconds=self.s.whole(0, 157_000_000))

    def host(self) -> str:
        """A host that can't exist."""
        return f"{self.s.pick(SERVICES)}-{self.s.whole(2, 98)}.{self.name().lower()}.example"

    def address(self) -> str:
        """Of the networks that are reserved for documentation."""
        return f"{self.s.pick(['192.0.2', '198.51.100', '203.0.113'])}.{self.s.whole(2, 253)}"

    def sensors(self) -> tuple[str, str, str]:
        """An inventory of sensors."""
        rows = [
            {
                "id": self.s.code(),
                "kind": self.s.pick(["pressure", "level", "flow", "strain", "humidity", "torque", "light", "current"]),
                "unit": self.s.pick(UNITS),
                "range": sorted([self.s.real(-40, 90, 1), self.s.real(91, 4000, 1)]),
                "site": {"hall": self.name(), "bay": self.s.whole(1, 64), "height_m": self.s.real(0.2, 19, 2)},
                "calibrated": self.day().date().isoformat(),
                "offset": self.s.real(-2, 2, 4),
                "spare": self.s.chance(0.3),
            }
            for _ in range(self.s.whole(3, 6))
        ]
        return "Sensor inventory", "json", json.dumps({"station": self.name(3), "sensors": rows}, indent=2)

    def order(self) -> tuple[str, str, str]:
        """A purchase order whose sums are right."""
        lines: list[dict[str, Any]] = []
        for number in range(self.s.whole(3, 7)):
            count, price = self.s.whole(1, 400), self.s.whole(15, 90_000)
            item = f"{self.s.pick(GOODS)} {self.s.pick(COLOURS)} {self.s.whole(3, 90)} mm"
            lines.append({"pos": number + 1, "item": item, "count": count, "cents": price, "sum": count * price})
        order = {
            "order": self.s.code(),
            "customer": f"customer-{self.s.whole(10_000, 99_999)}",
            "placed": self.day().isoformat(),
            "lines": lines,
            "total_cents": sum(line["sum"] for line in lines),
            "terms": {"days": self.s.pick([10, 14, 21, 30, 45, 60]), "discount_percent": self.s.real(0, 4, 1)},
        }
        return "Purchase order", "json", json.dumps(order, indent=2)

    def events(self) -> tuple[str, str, str]:
        """Events, one JSON object a line."""
        at, lines = self.day(), []
        for _ in range(self.s.whole(7, 13)):
            at += timedelta(milliseconds=self.s.whole(3, 900_000))
            event: dict[str, Any] = {"ts": at.isoformat(timespec="milliseconds"), "event": self.event()}
            if self.s.chance(0.6):
                event["actor"] = f"role-{self.s.whole(1, 400)}"
            event |= {"trace": self.s.hexadecimal(16), "took_us": self.s.whole(40, 2_000_000)}
            if self.s.chance(0.4):
                event["tags"] = self.s.some(COLOURS, self.s.whole(1, 3))
            lines.append(json.dumps(event))
        return "Event stream", "jsonl", "\n".join(lines)

    def event(self) -> str:
        """Something like ``lease.rotated``."""
        return f"{self.s.pick(NOUNS)}.{self.s.pick(VERBS)}"

    def geometry(self) -> tuple[str, str, str]:
        """A geographic feature."""
        at = (self.s.real(-170, 170, 5), self.s.real(-75, 75, 5))
        points = []
        for _ in range(self.s.whole(5, 11)):
            at = (round(at[0] + self.s.real(-0.02, 0.02, 5), 5), round(at[1] + self.s.real(-0.02, 0.02, 5), 5))
            points.append(list(at))
        feature = {
            "type": "Feature",
            "properties": {
                "name": f"{self.name()} trail",
                "surface": self.s.pick(["gravel", "sand", "asphalt", "turf"]),
            },
            "geometry": {"type": "LineString", "coordinates": points},
        }
        return "Path feature", "json", json.dumps(feature, indent=1)

    def schema(self) -> tuple[str, str, str]:
        """A JSON schema of some record."""
        properties: dict[str, Any] = {}
        for noun in self.s.some(NOUNS, self.s.whole(4, 7)):
            kind = self.s.pick(["integer", "string", "number", "array"])
            entry: dict[str, Any] = {"type": kind, "description": f"The {self.s.pick(COLOURS)} {noun} of {self.name()}"}
            if kind in {"integer", "number"}:
                entry |= {"minimum": self.s.whole(-50, 5), "maximum": self.s.whole(6, 90_000)}
            elif kind == "string":
                entry |= {"pattern": f"^{self.s.letters('abcxyz', 3)}[0-9]{{{self.s.whole(2, 9)}}}$"}
            else:
                entry |= {"items": {"enum": self.s.some(STATES, 4)}, "maxItems": self.s.whole(2, 40)}
            properties[f"{noun}_{self.s.pick(['id', 'code', 'size', 'owner', 'limit'])}"] = entry
        return "Record schema", "json", json.dumps({"title": self.name(3), "properties": properties}, indent=2)

    def deployment(self) -> tuple[str, str, str]:
        """A YAML description of a service."""
        name = f"{self.s.pick(SERVICES)}-{self.name().lower()}"
        lines = [
            f"service: {name}",
            f"image: registry.{self.name().lower()}.example/{name}:{self.s.whole(1, 9)}.{self.s.whole(0, 40)}",
            f"replicas: {self.s.whole(1, 24)}",
            "resources:",
            f"  cpu: {self.s.whole(100, 7900)}m",
            f"  memory: {self.s.whole(128, 30_000)}Mi",
            "environment:",
            *(
                f'  {noun.upper()}_{self.s.pick(["TTL", "LIMIT", "DEPTH", "WINDOW"])}: "{self.s.whole(2, 90_000)}"'
                for noun in self.s.some(NOUNS, self.s.whole(3, 6))
            ),
            "probes:",
            f"  - path: /{self.s.pick(NOUNS)}/health",
            f"    period_s: {self.s.whole(2, 90)}",
            f"    failures: {self.s.whole(1, 9)}",
            "ports:",
            *(f"  - {{name: {colour}, number: {self.s.whole(1025, 65_000)}}}" for colour in self.s.some(COLOURS, 3)),
        ]
        return "Service description", "yaml", "\n".join(lines)

    def workflow(self) -> tuple[str, str, str]:
        """A YAML pipeline with steps that need one another."""
        lines = [
            f"pipeline: {self.name(3).lower()}",
            f"cron: '{self.s.whole(0, 59)} {self.s.whole(0, 23)} * * *'",
            "steps:",
        ]
        earlier = ""
        for noun in self.s.some(NOUNS, self.s.whole(3, 6)):
            step = f"{noun}_{self.s.whole(10, 999)}"
            lines += [f"  - id: {step}", f"    run: ./{self.s.pick(SERVICES)} --{self.s.pick(VERBS)}"]
            lines += [f"    needs: [{earlier}]"] if earlier else []
            lines += [f"    timeout: {self.s.whole(1, 180)}m", f"    retry: {self.s.whole(0, 5)}"]
            earlier = step
        return "Pipeline", "yaml", "\n".join(lines)

    def measurements(self) -> tuple[str, str, str]:
        """A CSV of readings."""
        kinds = self.s.some(UNITS, 4)
        rows, at = [",".join(["time", "station", *(f"value_{unit}" for unit in kinds), "quality"])], self.day()
        levels = [self.s.real(1, 800, 2) for _ in kinds]
        station = self.s.code()
        for _ in range(self.s.whole(9, 18)):
            at += timedelta(seconds=self.s.whole(20, 900))
            levels = [round(level * self.s.real(0.95, 1.05, 4), 2) for level in levels]
            quality = self.s.pick(["ok", "ok", "ok", "late", "void"])
            rows.append(",".join([at.isoformat(), station, *map(str, levels), quality]))
        return "Readings", "csv", "\n".join(rows)

    def stock(self) -> tuple[str, str, str]:
        """A CSV of stock with semicolons."""
        rows = ["article;shelf;on_hand;reserved;last_count;value_cents"]
        for good in self.s.some(GOODS, self.s.whole(6, 12)):
            have = self.s.whole(0, 4000)
            shelf = f"{self.s.letters('ABCDEFGH', 1)}{self.s.whole(1, 60)}-{self.s.whole(1, 9)}"
            rows.append(
                f"{good} {self.s.code()};{shelf};{have};{int(have * self.s.real(0, 0.8, 2))};"
                f"{self.day().date()};{have * self.s.whole(3, 900)}"
            )
        return "Stock list", "csv", "\n".join(rows)

    def settings(self) -> tuple[str, str, str]:
        """An INI file."""
        lines = []
        for service in self.s.some(SERVICES, self.s.whole(3, 5)):
            lines += [
                f"[{service}]",
                f"endpoint = https://{self.host()}:{self.s.whole(1025, 65_000)}/{self.s.pick(NOUNS)}",
            ]
            for noun in self.s.some(NOUNS, self.s.whole(2, 4)):
                value = self.s.pick(["on", "off", str(self.s.whole(1, 9999)), f"{self.s.real(0, 90, 2)}s", self.name()])
                lines.append(f"{self.s.pick(['max', 'min', 'default', 'initial'])}_{noun} = {value}")
            lines.append("")
        return "Settings", "ini", "\n".join(lines).rstrip()

    def manifest(self) -> tuple[str, str, str]:
        """A TOML manifest."""
        lines = [
            "[package]",
            f'name = "{self.name(3).lower()}"',
            f'version = "{self.s.whole(0, 9)}.{self.s.whole(0, 30)}.0"',
        ]
        lines += [f"released = {self.day().date()}", "", "[limits]"]
        lines += [f"{noun} = {self.s.whole(1, 900_000)}" for noun in self.s.some(NOUNS, 4)]
        for _ in range(self.s.whole(2, 4)):
            lines += [
                "",
                "[[artifact]]",
                f'path = "dist/{self.s.code().lower()}.bin"',
                f'digest = "{self.s.hexadecimal(40)}"',
            ]
            lines += [f"bytes = {self.s.whole(900, 80_000_000)}", f"signed = {self.s.pick(['true', 'false'])}"]
        return "Package manifest", "toml", "\n".join(lines)

    def catalogue(self) -> tuple[str, str, str]:
        """An XML catalogue."""
        lines = [f'<catalogue edition="{self.s.whole(2, 80)}" region="{self.name()}">']
        for good in self.s.some(GOODS, self.s.whole(3, 6)):
            lines += [
                f'  <article code="{self.s.code()}" colour="{self.s.pick(COLOURS)}">',
                f"    <title>{good}</title>",
            ]
            lines += [
                f'    <mass unit="g">{self.s.real(2, 9000, 1)}</mass>',
                f"    <pack>{self.s.whole(1, 500)}</pack>",
            ]
            lines += [f'    <price currency="EUR">{self.s.real(0.2, 900, 2):.2f}</price>', "  </article>"]
        return "Catalogue", "xml", "\n".join([*lines, "</catalogue>"])

    def log(self) -> tuple[str, str, str]:
        """An excerpt of a log."""
        at, lines, worker = self.day(), [], self.s.whole(1, 40)
        for _ in range(self.s.whole(8, 15)):
            at += timedelta(milliseconds=self.s.whole(1, 40_000))
            level = self.s.pick(["INFO", "INFO", "DEBUG", "WARNING", "ERROR"])
            event = f"{self.s.pick(NOUNS)} {self.s.hexadecimal(8)} {self.s.pick(VERBS)}"
            rest = self.s.pick(
                [
                    f"after {self.s.whole(2, 9000)} ms",
                    f"by peer {self.address()}:{self.s.whole(1025, 65_000)}",
                    f"with {self.s.whole(2, 70_000)} rows left",
                    f"at offset {self.s.whole(4096, 90_000_000)}",
                ]
            )
            lines.append(
                f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} {level:7} [worker-{worker}] {event} {rest}"
            )
        return "Log excerpt", "log", "\n".join(lines)

    def access(self) -> tuple[str, str, str]:
        """Requests as a web server notes them."""
        at, lines = self.day(), []
        for _ in range(self.s.whole(7, 12)):
            at += timedelta(seconds=self.s.whole(0, 30))
            path = f"/v{self.s.whole(1, 4)}/{self.s.pick(NOUNS)}s/{self.s.whole(100, 999_999)}"
            method, status = (
                self.s.pick(["GET", "GET", "POST", "PUT", "DELETE"]),
                self.s.pick([200, 200, 201, 204, 304, 404, 429, 503]),
            )
            stamp = f"{at:%d/%b/%Y:%H:%M:%S} +0000"
            lines.append(
                f'{self.address()} - - [{stamp}] "{method} {path} HTTP/1.1" {status} {self.s.whole(0, 90_000)}'
            )
        return "Access log", "log", "\n".join(lines)

    def table(self) -> tuple[str, str, str]:
        """A Markdown table."""
        head = self.s.some(["count", "mean", "spread", "limit", "share", "rank", "load", "age"], self.s.whole(3, 5))
        lines = [f"| {self.s.pick(NOUNS)} | {' | '.join(head)} |", f"|---|{'---:|' * len(head)}"]
        for _ in range(self.s.whole(5, 10)):
            cells = [str(self.s.pick([self.s.whole(1, 9000), self.s.real(0, 90, 2), "-"])) for _ in head]
            lines.append(f"| {self.name(3)} | {' | '.join(cells)} |")
        return "Summary table", "markdown", "\n".join(lines)

    def endpoint(self) -> tuple[str, str, str]:
        """A description of one call of an interface."""
        noun, verb, limit = self.s.pick(NOUNS), self.s.pick(["GET", "POST", "PATCH"]), self.s.whole(2, 900)
        lines = [f"## {verb} /v{self.s.whole(1, 6)}/{noun}s/{{{noun}_id}}/{self.s.pick(SERVICES)}", ""]
        lines += [
            f"Allowed {limit} times a minute per key. Answers within {self.s.whole(20, 4000)} ms at the median.",
            "",
        ]
        for other in self.s.some(NOUNS, self.s.whole(3, 5)):
            kind = self.s.pick(["integer", "string", "timestamp", "list of codes"])
            need = self.s.pick(["required", f"optional, {self.s.whole(1, 500)} by default"])
            lines.append(f"- `{other}_{self.s.pick(COLOURS)}` ({kind}, {need}): at most {self.s.whole(8, 4096)} bytes")
        for status in self.s.some([400, 401, 404, 409, 413, 422, 429, 503], 3):
            lines.append(
                f"- answers {status} with code `{self.s.code()}` when the {self.s.pick(NOUNS)} was {self.s.pick(VERBS)}"
            )
        return "Interface call", "markdown", "\n".join(lines)

    def invoice(self) -> tuple[str, str, str]:
        """An invoice as plain text; its sums are right."""
        net, lines = (
            0,
            [f"INVOICE {self.s.code()}    date {self.day().date()}    customer {self.s.whole(10_000, 99_999)}"],
        )
        for good in self.s.some(GOODS, self.s.whole(3, 6)):
            count, cents = self.s.whole(1, 90), self.s.whole(20, 50_000)
            net += count * cents
            lines.append(f"{count:4d} x {good:20} {cents / 100:10.2f} {count * cents / 100:12.2f}")
        tax = net * 19 // 100
        lines += [f"net {net / 100:.2f}, tax at 19 percent {tax / 100:.2f}, to pay {(net + tax) / 100:.2f}"]
        lines += [f"payable within {self.s.whole(7, 60)} days under reference {self.s.hexadecimal(12)}"]
        return "Invoice", "text", "\n".join(lines)

    def patch(self) -> tuple[str, str, str]:
        """A change of a settings file."""
        path, at, nouns = (
            f"conf/{self.name().lower()}.conf",
            self.s.whole(2, 400),
            self.s.some(NOUNS, self.s.whole(2, 4)),
        )
        lines = [f"--- a/{path}", f"+++ b/{path}"]
        lines.append(f"@@ -{at},{2 * len(nouns)} +{at},{2 * len(nouns)} @@ {self.s.pick(SERVICES)}")
        for noun in nouns:
            key = f"{noun}.{self.s.pick(COLOURS)}"
            lines += [f" # {self.s.code()}", f"-{key}={self.s.whole(1, 9000)}", f"+{key}={self.s.whole(1, 9000)}"]
        return "Patch", "diff", "\n".join(lines)


def documents(source: Source, size: int) -> str:
    """Blocks of all kinds in changing order, at least ``size`` bytes together."""
    writer = Writer(source)
    kinds: list[Callable[[], tuple[str, str, str]]] = [
        *(writer.sensors, writer.order, writer.events, writer.geometry, writer.schema, writer.deployment),
        *(writer.workflow, writer.measurements, writer.stock, writer.settings, writer.manifest, writer.catalogue),
        *(writer.log, writer.access, writer.table, writer.endpoint, writer.invoice, writer.patch),
    ]
    parts: list[str] = []
    written = 0
    while written < size:
        for kind in source.some(kinds, len(kinds)):
            title, language, body = kind()
            parts.append(f"{title} {source.code()}\n\n```{language}\n{body}\n```\n")
            written += len(parts[-1]) + 1
            if written >= size:
                break
    return "\n".join(parts)
