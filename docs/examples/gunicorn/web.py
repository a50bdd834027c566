# web.py
from jobs import scheduler
from tenure.health import wsgi

probes = wsgi(scheduler)


def app(environ, start_response):
    if environ["PATH_INFO"].startswith("/jobs/"):
        return probes(environ, start_response)  # /jobs/live and /jobs/ready
    start_response("200 OK", [("content-type", "text/plain")])
    return [b"the shop"]
