# scheduling/apps.py
from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class SchedulingConfig(AppConfig):
    name = "scheduling"

    def ready(self) -> None:
        autodiscover_modules("jobs")  # adds the jobs of all apps, and starts nothing
