"""Whether the process of this container answers: `python deploy/healthy.py /readyz [PORT]`. Standard library only.

The Host header is one that QUITS_ALLOWED_HOSTS allows, because that is what Django asks for.
"""

import http.client
import os
import sys


def main(path: str, port: str = "8000") -> int:
    host = os.environ.get("QUITS_ALLOWED_HOSTS", "localhost").split(",")[0].lstrip(".*") or "localhost"
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=4)
    try:
        connection.request("GET", path, headers={"Host": host})
        return 0 if connection.getresponse().status == 200 else 1
    except (OSError, http.client.HTTPException):
        return 1
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
