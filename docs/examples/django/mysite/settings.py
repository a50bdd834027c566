# mysite/settings.py
import os
from pathlib import Path

SECRET_KEY = os.environ.get("SECRET_KEY", "only for this example")
USE_TZ = True
INSTALLED_APPS = ["scheduling", "billing"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path.cwd() / "site.db"}}

JOBS_STORE = os.environ.get("JOBS_STORE", "sqlite:///jobs.db")
