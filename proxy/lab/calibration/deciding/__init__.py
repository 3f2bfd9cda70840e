"""From measurements to what is measured next, and to findings. Pure; measuring is in stand/ and virtual/."""
