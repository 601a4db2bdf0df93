-- What sending a task again writes, beside the task itself. {web}: see roles.sql. Rows of the caller's tenant only, by
-- the policies that both tables have.
GRANT UPDATE (input, output, error) ON task_body TO {web};
GRANT DELETE ON task_term TO {web};
