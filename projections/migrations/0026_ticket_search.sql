-- All tickets of one guest at one restaurant, newest first. A guest is known by the subject whose
-- key the mobile number leads to, never by the number: places rise with joining.
CREATE INDEX tickets_guest_idx ON tickets (restaurant_id, subject_id, place);

ALTER TABLE finished_tickets ADD COLUMN subject_id uuid;
UPDATE finished_tickets
SET subject_id = (convert_from(ticket, 'UTF8')::jsonb #>> '{guest,subject_id}')::uuid;
ALTER TABLE finished_tickets ALTER COLUMN subject_id SET NOT NULL;
CREATE INDEX finished_tickets_guest_idx ON finished_tickets (restaurant_id, subject_id, place);
