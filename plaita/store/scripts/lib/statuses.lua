-- Every status has an index of its own beside the index of all: the twin of STATUSES in store/keys.py.
local STATUSES = {'pending', 'running', 'suspended', 'completed', 'error', 'cancelled'}
