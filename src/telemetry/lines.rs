//! What a text log line shows of the spans around it: the request's id, not the dozens of attributes
//! that traces carry.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing_subscriber::{
    field::{RecordFields, VisitOutput},
    fmt::{
        FormatFields, FormattedFields,
        format::{DefaultVisitor, Writer},
    },
};

use super::names::attribute;

/// Formats the fields of events in full and of spans without their dotted attributes.
#[derive(Debug, Default)]
pub(super) struct LineFields;

impl<'w> FormatFields<'w> for LineFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut visitor = DefaultVisitor::new(writer, true);
        fields.record(&mut Sieve(&mut visitor));
        visitor.finish()
    }

    fn add_fields(
        &self,
        current: &'w mut FormattedFields<Self>,
        fields: &tracing::span::Record<'_>,
    ) -> fmt::Result {
        let mut added = String::new();
        let mut visitor = DefaultVisitor::new(Writer::new(&mut added), true);
        fields.record(&mut Sieve(&mut visitor));
        visitor.finish()?;
        if !added.is_empty() {
            if !current.fields.is_empty() {
                current.fields.push(' ');
            }
            current.fields.push_str(&added);
        }
        Ok(())
    }
}

/// Passes on what a line shows.
struct Sieve<'a>(&'a mut dyn Visit);

impl Sieve<'_> {
    fn shows(field: &Field) -> bool {
        !field.name().contains('.') || field.name() == attribute::REQUEST_ID
    }
}

impl Visit for Sieve<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if Self::shows(field) {
            self.0.record_debug(field, value);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if Self::shows(field) {
            self.0.record_str(field, value);
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        if Self::shows(field) {
            self.0.record_error(field, value);
        }
    }
}
