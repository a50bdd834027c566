# scheduling/management/commands/run_jobs.py
from django.core.management.base import BaseCommand

from scheduling.scheduler import scheduler


class Command(BaseCommand):
    help = "Run the jobs of this site until SIGTERM."

    def handle(self, **options: object) -> None:
        scheduler.run()
