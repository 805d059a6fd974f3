"""Object stores: S3, Google Cloud Storage, Azure, folders, memory.

``opening`` opens a store by its URL and options; ``protocol`` is the interface of a store. Below it a room for the
clouds' shared half of reading (obstore), one for their shared half of writing (HTTP of ours), and one each for a
cloud's own half. What belongs here: everything that knows a store. What does not: the content of its objects. Rooms
import downwards only: ``protocol``, ``credentials`` ← ``settings`` ← ``writing`` ← ``s3``, ``gcs`` ← ``reading`` ←
``azure`` ← ``opening``.
"""
