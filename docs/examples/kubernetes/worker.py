# worker.py
import os
import threading
from wsgiref.simple_server import WSGIRequestHandler, make_server

from tenure import Context, Scheduler
from tenure.health import wsgi

scheduler = Scheduler(os.environ["JOBS_STORE"], grace="30s")


@scheduler.every("sync", "2s")
def sync(ctx: Context) -> None:
    print(f"sync {ctx.slot:%H:%M:%S} on {ctx.instance}", flush=True)


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def answer_probes() -> None:
    port = int(os.environ.get("PROBES_PORT", "8080"))
    with make_server("", port, wsgi(scheduler), handler_class=Quiet) as server:
        server.serve_forever()


if __name__ == "__main__":
    threading.Thread(target=answer_probes, daemon=True).start()
    scheduler.run()
