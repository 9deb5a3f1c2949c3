//! What a subcommand says: text to standard output, errors with their causes.

use std::io::{self, Write};

/// Writes a text and a line feed to standard output.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.trim_end().as_bytes())?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Returns whether whoever read the output has left.
pub(super) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Returns an error with its causes, a line each; a cause that the line before already quotes is left out.
pub(super) fn explained(error: &anyhow::Error) -> String {
    let mut text = format!("error: {error}");
    let mut before = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !before.contains(&cause) {
            text.push_str("\n  caused by: ");
            text.push_str(&cause);
        }
        before = cause;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once() {
        let error = anyhow::anyhow!("disk full").context("cannot write: disk full").context("export failed");
        assert_eq!(explained(&error), "error: export failed\n  caused by: cannot write: disk full");
        let pipe = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("printing");
        assert!(is_closed_pipe(&pipe) && !is_closed_pipe(&error));
    }
}
