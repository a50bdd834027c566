# billing/jobs.py
from django.db import connection
from scheduling.scheduler import scheduler
from tenure import Context


@scheduler.every("sync", "2s")
def sync(ctx: Context) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select 1")
    print(f"sync {ctx.slot:%H:%M:%S} on {ctx.instance}", flush=True)
