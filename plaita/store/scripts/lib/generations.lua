-- The twin of policy/generations.py: of another family or budget than ours; what is no id is legacy, like none (ledger C3).
local function of_another(value, ours, form)
  return ours ~= '' and value and value ~= ours and string.match(value, form) ~= nil
end

local function of_another_family(named, ours)
  return of_another(named.config_family, ours, '^cf1%-%w+$')
end

local function of_another_budget(named, ours)
  return of_another(named.budget_generation, ours, '^bg1%-%w+$')
end
