"""The stages of scripts/gpu/gpu_check. Each is a module of this package:

  items(context)    what it does (gpu_schedule.Item); when, and whether in a call at all, the schedule's table says
  report(context)   lines of Markdown about what its items found, for gpu_check.md; may be left out
  goals(context)    rows of the table of goals; may be left out
  summary(context)  a few lines for the table that ends a call; may be left out

What an item needs and does not find is a reason for it not to run, or to fail. On the simulator an item of the same
name does as much of the same as that can, with tiny shapes, in seconds.
"""

NAMES = ("build", "inventory", "limits", "checks", "golden", "steps", "timelines", "server", "ops", "baselines",
         "products", "reference")
