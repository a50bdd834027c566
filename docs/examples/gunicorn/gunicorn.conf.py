# gunicorn.conf.py
workers = 2
graceful_timeout = 30  # longer than the scheduler's grace


def post_worker_init(worker):
    from jobs import scheduler

    scheduler.start()


def worker_exit(server, worker):
    from jobs import scheduler

    scheduler.stop()
