"""Pages that show an entity's view and follow it: what is watched, who may, and one subscription of
this process for all browsers that watch the same.
"""
