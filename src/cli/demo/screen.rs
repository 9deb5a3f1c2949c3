//! Where the demo writes: text on standard output, and a live line that a terminal keeps in place.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};

/// Time between two live lines on a terminal, and elsewhere.
const PERIODS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(5)];

/// The terminal, or what stands for it.
pub(super) struct Screen {
    live: Option<ProgressBar>,
}

impl Screen {
    /// Looks whether there is a terminal.
    pub(super) fn new() -> Self {
        let terminal = io::stdout().is_terminal() && io::stderr().is_terminal();
        Self { live: terminal.then(live_line) }
    }

    /// Returns the time between two live lines.
    pub(super) const fn period(&self) -> Duration {
        if self.live.is_some() { PERIODS[0] } else { PERIODS[1] }
    }

    /// Writes text above the live line.
    pub(super) fn print(&self, text: &str) -> io::Result<()> {
        match &self.live {
            Some(live) => live.suspend(|| write(text)),
            None => write(text),
        }
    }

    /// Renews the live line, or writes a line of its own where lines cannot be renewed.
    pub(super) fn status(&self, line: &str) -> io::Result<()> {
        match &self.live {
            Some(live) => {
                live.set_message(line.to_string());
                Ok(())
            }
            None => write(&format!("{line}\n")),
        }
    }

    /// Leaves the last live line in place.
    pub(super) fn close(&self) {
        if let Some(live) = &self.live {
            live.abandon();
        }
    }
}

fn live_line() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
