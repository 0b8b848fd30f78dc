//! Which payloads, edits and errors the answers of a batch need, and how they are read.

use crate::batch::outcome::{Contents, Outcome};
use crate::connection::session::{Parameters, Session, Step, pipeline};
use crate::error::Failure;
use crate::pages::payloads::PayloadPieces;
use crate::pages::snapshot::{ItemSnapshot, PayloadRef};
use tokio_postgres::Row;
use towline_domain::{Field, FieldSet};
use towline_store::transaction::Deliveries;

#[derive(Debug, Default)]
pub(crate) struct ContentRequest {
    pieces: PayloadPieces,
    edited: Vec<i64>,
    edited_fields: [bool; 4],
    with_errors: Vec<i64>,
}

impl ContentRequest {
    pub(crate) fn of(outcomes: &[Outcome]) -> ContentRequest {
        let mut request = ContentRequest::default();
        for outcome in outcomes {
            let Outcome::Received(Deliveries { items: given, fields, .. }) = outcome else { continue };
            for given in given.iter().filter(|given| given.is_stored()) {
                request.add(given.seq, &given.kept, *fields);
                if given.may_have_errors() {
                    request.with_errors.push(given.seq.cast_signed());
                }
            }
        }
        request
    }

    /// Everything of these items but the fields that `fields` leaves out.
    pub(crate) fn all(items: &[ItemSnapshot], fields: FieldSet) -> ContentRequest {
        let mut request = ContentRequest::default();
        for item in items {
            request.add(item.seq, &item.kept, fields);
            if item.kept.side {
                request.with_errors.push(item.seq.cast_signed());
            }
        }
        request
    }

    fn add(&mut self, seq: u64, kept: &PayloadRef, fields: FieldSet) {
        let fields = Field::ALL.map(|field| fields.contains(field));
        self.pieces.want(seq, &kept.at, fields);
        if kept.edited.is_some() {
            self.edited.push(seq.cast_signed());
            self.edited_fields.iter_mut().zip(fields).for_each(|(asked, field)| *asked |= field);
        }
    }

    pub(crate) fn payloads(&self) -> Parameters<'_> {
        let PayloadPieces { partition, chunk, offset, length, .. } = &self.pieces;
        vec![partition, chunk, offset, length]
    }

    pub(crate) fn edits(&self) -> Parameters<'_> {
        let [state_blob, blob, metadata, parameters] = &self.edited_fields;
        vec![&self.edited, state_blob, blob, metadata, parameters]
    }

    pub(crate) fn errors(&self) -> Parameters<'_> {
        vec![&self.with_errors]
    }

    pub(crate) fn contents(
        self,
        payloads: &[Row],
        edits: &[Row],
        errors: &[Row],
        outcomes: &[Row],
    ) -> Contents {
        Contents::read(self.pieces, payloads, edits, errors, outcomes)
    }

    /// The statements that read it, without those that would read nothing.
    pub(super) fn steps<'a>(&'a self, session: &'a Session) -> Vec<Step<'a>> {
        let statements = &session.statements;
        let mut steps = Vec::new();
        if !self.pieces.is_empty() {
            steps.push(session.step(&statements.read_payloads, self.payloads()));
        }
        if !self.edited.is_empty() {
            steps.push(session.step(&statements.read_edits, self.edits()));
        }
        if !self.with_errors.is_empty() {
            steps.push(session.step(&statements.read_errors, self.errors()));
        }
        steps
    }

    /// The contents from the rows of [`ContentRequest::steps`].
    pub(super) fn contents_of_steps(self, rows: Vec<Vec<Row>>) -> Contents {
        let mut rows = rows.into_iter();
        let mut next = |sent: bool| if sent { rows.next().unwrap_or_default() } else { Vec::new() };
        let payloads = next(!self.pieces.is_empty());
        let edits = next(!self.edited.is_empty());
        let errors = next(!self.with_errors.is_empty());
        self.contents(&payloads, &edits, &errors, &[])
    }

    /// Reads it outside a batch: the batch was committed, but the connection was lost before its answers arrived.
    pub(crate) async fn read(self, session: &Session) -> Result<Contents, Failure> {
        let rows = pipeline(self.steps(session)).await?;
        Ok(self.contents_of_steps(rows))
    }
}
