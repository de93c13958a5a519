"""The stages of scripts/gpu/gpu_check, in the order of their worth. Each is a module of this package:

  run(context)      goes through its items (gpu_results.py): each is kept as soon as it is done
  report(context)   lines of Markdown about what its items found, for gpu_check.md; may be left out
  goals(context)    rows of the table of goals; may be left out
  summary(context)  a few lines for the table that ends a call; may be left out

What an item needs and does not find is a reason for it not to run, or to fail. On a device that is no GPU a
stage does as much of the same as that device can, with tiny shapes, in seconds.
"""

ORDER = ("inventory", "build", "limits", "checks", "golden", "steps", "timelines", "server", "products", "ops",
         "baselines", "remaining", "sanitize")
