"""Reads a zone as OctoDNS does, dumps it as OctoDNS does, and writes it as a master file.

dump.py SOURCE_FOLDER TARGET_FOLDER ZONE MASTER_FILE
"""
import sys

from octodns.manager import Manager
from octodns.provider.yaml import YamlProvider
from octodns.zone import Zone



def quoted(text):
    """A text as strings of 255 octets."""
    parts = [text[at : at + 255] for at in range(0, len(text), 255)]
    return " ".join('"' + part.replace("\\", "\\\\").replace('"', '\\"') + '"' for part in parts)


source, target, name, master = sys.argv[1:]
config = f"{target}/octodns.conf"
with open(config, "w") as file:
    print(
        "providers:\n"
        f"  source: {{ class: octodns.provider.yaml.YamlProvider, directory: {source}, enforce_order: false }}\n"
        f"zones: {{ {name}: {{ sources: [source], targets: [] }} }}",
        file=file,
    )
Manager(config).dump(name, target, sources=["source"], lenient=True)

zone = Zone(name, [])
YamlProvider("source", source, enforce_order=False).populate(zone, lenient=True)
with open(master, "w") as file:
    print(f"{name} 3600 IN SOA ns1.{name} hostmaster.{name} 1 3600 600 604800 30", file=file)
    for record in sorted(zone.records):
        if record._type in ("TXT", "SPF"):
            values = [quoted(value.replace("\\;", ";")) for value in record.values]
        else:
            values = record.to_rrset().rdatas
        for value in values:
            print(record.fqdn, record.ttl, "IN", record._type, value, file=file)
