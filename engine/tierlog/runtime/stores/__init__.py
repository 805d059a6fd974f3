"""Object stores: S3, Google Cloud Storage, Azure, folders, memory.

``opening`` gives a store by its URL and options; ``protocol`` says what a store is. Below it a room for what all clouds
share when they are read (obstore), one for what they share when they are written (HTTP of ours), and one each for what
is a cloud's own. What belongs here: everything that knows a store. What does not: what is in its objects. Rooms import
downwards only: ``protocol``, ``credentials`` ← ``settings`` ← ``writing`` ← ``s3``, ``gcs`` ← ``reading`` ← ``azure`` ←
``opening``.
"""
