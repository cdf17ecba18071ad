"""Print the oldest versions that pyproject.toml allows, as constraints for pip.

python .ci/floors.py EXTRA... > constraints.txt
"""

import re
import sys
import tomllib
from pathlib import Path

OWN_EXTRAS = re.compile(r"kernelsieve\[(.+)\]")
FLOOR = re.compile(r"([\w.-]+)(?:\[.*\])?>=([\w.]+)")

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


def floors(requirements: list[str]) -> dict[str, str]:
    found = {}
    for requirement in requirements:
        if own := OWN_EXTRAS.fullmatch(requirement):
            for extra in own[1].split(","):
                found |= floors(project["optional-dependencies"][extra])
        elif floor := FLOOR.fullmatch(requirement):
            found[floor[1]] = floor[2]
        else:
            sys.exit(f"{requirement!r} has no floor: write it as 'name>=version'")
    return found


extras = [f"kernelsieve[{extra}]" for extra in sys.argv[1:]]
for name, version in floors([*project["dependencies"], *extras]).items():
    print(f"{name}=={version}")
