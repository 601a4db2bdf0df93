-- Body of the trigger task_told_to_others, on tasks that are `linked`: NEW has ended, or was parked by its kind.
-- A function's statements see what is committed now, so a child that was spawned a moment before its parent ended is seen.
-- Needs: task_of_parent, dependency_on. Locks: dependency rows of what waits for NEW.
IF NEW.finished_at IS NULL THEN
    INSERT INTO notice (task_id, tenant_id, down) VALUES (NEW.id, NEW.tenant_id, false);
    RETURN NULL;
END IF;
IF NEW.parent_id IS NOT NULL THEN
    INSERT INTO notice (task_id, tenant_id, down) VALUES (NEW.parent_id, NEW.tenant_id, false);
END IF;
IF NEW.state = 'succeeded' THEN
    UPDATE dependency SET met = true WHERE on_id = NEW.id AND NOT met;
END IF;
INSERT INTO notice (task_id, tenant_id, down)
SELECT task_id, tenant_id, NEW.state <> 'succeeded' FROM dependency WHERE on_id = NEW.id;
IF (SELECT finished_at IS NULL FROM task WHERE parent_id = NEW.id ORDER BY finished_at DESC, id DESC LIMIT 1) THEN
    INSERT INTO notice (task_id, tenant_id, down) VALUES (NEW.id, NEW.tenant_id, true);
END IF;
RETURN NULL;
