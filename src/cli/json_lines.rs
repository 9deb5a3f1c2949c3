//! JSON lines in, one JSON line each out, for the subcommands that answer line by line.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    path::Path,
};

use anyhow::{Context, ensure};

/// One line of the input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    /// Its number, from 1; blank lines count.
    pub(super) number: usize,
    /// Its bytes without the line feed.
    pub(super) bytes: &'a [u8],
}

/// What was written for a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its answer.
    Answered,
    /// An error line.
    Bad,
}

/// Lets `answer` write one line (without the line feed) on standard output for each line of `file` (`-`:
/// standard input). Answers go out before the next line is waited for.
///
/// # Errors
/// The input cannot be read, the output cannot be written, or, after the last line, some were bad.
pub(super) fn answer(
    file: &Path,
    answer: impl FnMut(Line<'_>, &mut dyn Write) -> anyhow::Result<Verdict>,
) -> anyhow::Result<()> {
    let mut output = BufWriter::new(io::stdout().lock());
    let (lines, bad) = answer_lines(open(file)?, &mut output, answer)?;
    ensure!(bad == 0, "{bad} of {lines} lines had errors; see their output lines for the place");
    Ok(())
}

fn open(file: &Path) -> anyhow::Result<Box<dyn Read>> {
    if file == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let opened = File::open(file).with_context(|| format!("cannot open `{}`", file.display()))?;
    Ok(Box::new(opened))
}

/// Returns how many lines were read and how many of them were bad; blank lines are passed over.
///
/// # Errors
/// The input cannot be read or the output cannot be written.
pub(super) fn answer_lines(
    input: impl Read,
    mut output: impl Write,
    mut answer: impl FnMut(Line<'_>, &mut dyn Write) -> anyhow::Result<Verdict>,
) -> anyhow::Result<(usize, usize)> {
    const WRITE: &str = "cannot write to standard output";
    let mut input = BufReader::new(input);
    let (mut number, mut lines, mut bad) = (0, 0, 0);
    let mut bytes = Vec::new();
    loop {
        // Reading on would wait for more input: what is answered goes out first.
        if !input.buffer().contains(&b'\n') {
            output.flush().context(WRITE)?;
        }
        bytes.clear();
        number += 1;
        let read = input.read_until(b'\n', &mut bytes);
        if read.with_context(|| format!("cannot read line {number}"))? == 0 {
            return Ok((lines, bad));
        }
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        lines += 1;
        if answer(Line { number, bytes }, &mut output)? == Verdict::Bad {
            bad += 1;
        }
        output.write_all(b"\n").context(WRITE)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::RefCell, rc::Rc};

    fn echo(line: Line<'_>, output: &mut dyn Write) -> anyhow::Result<Verdict> {
        write!(output, "{}:{}", line.number, String::from_utf8_lossy(line.bytes))?;
        Ok(if line.bytes.starts_with(b"bad") { Verdict::Bad } else { Verdict::Answered })
    }

    #[test]
    fn blank_lines_count_in_numbers_only() {
        let mut output = Vec::new();
        let counts = answer_lines(&b"a\n\n \t\r\nbad\nlast"[..], &mut output, echo).unwrap();
        assert_eq!(counts, (3, 1));
        assert_eq!(output, b"1:a\n4:bad\n5:last\n");
    }

    /// Gives its pieces one read each and notes, before each, what had come out.
    struct Watcher {
        pieces: std::vec::IntoIter<&'static str>,
        out: Rc<RefCell<Vec<u8>>>,
        seen: Rc<RefCell<Vec<usize>>>,
    }

    impl Read for Watcher {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.seen.borrow_mut().push(self.out.borrow().len());
            self.pieces.next().map_or(Ok(0), |piece| piece.as_bytes().read(buffer))
        }
    }

    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn answers_come_before_the_next_line_is_waited_for() {
        let (out, seen) = (Rc::new(RefCell::default()), Rc::new(RefCell::default()));
        let pieces = vec!["a\nb\nhal", "f\n"].into_iter();
        let watcher = Watcher { pieces, out: Rc::clone(&out), seen: Rc::clone(&seen) };
        answer_lines(watcher, BufWriter::new(Shared(Rc::clone(&out))), echo).unwrap();
        // Before the first piece nothing, before the second both whole lines, before the end all three.
        assert_eq!(*seen.borrow(), [0, "1:a\n2:b\n".len(), "1:a\n2:b\n3:half\n".len()]);
    }
}
