"""Print pip constraints that pin the project's requirements to the lowest minor versions that pyproject.toml allows."""

import re
import sys
import tomllib

with open(sys.argv[1], "rb") as f:
    project = tomllib.load(f)["project"]
for requirement in project["dependencies"] + project["optional-dependencies"]["test"]:
    found = re.fullmatch(r"([\w.-]+)>=([\d.]+)", requirement)
    if found:
        print(f"{found[1]}=={found[2]}.*")
