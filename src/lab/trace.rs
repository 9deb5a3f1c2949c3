//! Recorded traffic: when requests came, how long they were, which prefixes they shared.
//!
//! Three forms are told apart by their first line: JSON lines (Mooncake: `timestamp` in milliseconds,
//! `input_length`, `output_length`, `hash_ids`; or exported decisions: `decided_at` in microseconds), CSV with a
//! header (Azure: `TIMESTAMP`, `ContextTokens`, `GeneratedTokens`), or one number of seconds a line.

use serde::Deserialize;

use super::{
    LabError,
    options::{self, Files},
};

/// One recorded request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TraceRow {
    /// From the first request, microseconds.
    pub(super) at_us: u64,
    /// Prompt tokens; absent: not recorded.
    pub(super) prompt_tokens: Option<u32>,
    /// Output tokens; absent: not recorded.
    pub(super) output_tokens: Option<u32>,
    /// Ids of the prompt's blocks of 512 tokens, each standing for all before it too; empty: not recorded.
    pub(super) hash_ids: Vec<u64>,
}

/// What one line says; its time is absolute.
struct Line {
    at_us: i64,
    row: TraceRow,
}

/// Reads the trace that options name as `file`, in order of time.
pub(super) fn read(files: &Files, file: &str) -> Result<Vec<TraceRow>, LabError> {
    let error = |what: String| LabError::Data { file: file.to_owned(), what };
    let mut lines = options::text(files, file)?
        .lines()
        .map(str::trim)
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .peekable();
    let Some((_, first)) = lines.peek() else { return Err(error(String::from("has no requests"))) };
    let columns = (!first.starts_with('{') && !first.starts_with(|c: char| c.is_ascii_digit() || c == '-'))
        .then(|| Columns::of(first))
        .transpose()
        .map_err(error)?;
    let mut rows = Vec::new();
    for (index, text) in lines.skip(usize::from(columns.is_some())) {
        let line = match &columns {
            Some(columns) => columns.line(text).map(Some),
            None if text.starts_with('{') => json_line(text),
            None => number_line(text).map(Some),
        };
        rows.extend(line.map_err(|what| error(format!("line {}: {what}", index + 1)))?);
    }
    rows.sort_by_key(|line| line.at_us);
    let Some(start_us) = rows.first().map(|line| line.at_us) else {
        return Err(error(String::from("has no requests")));
    };
    let relative = |line: Line| TraceRow { at_us: line.at_us.abs_diff(start_us), ..line.row };
    Ok(rows.into_iter().map(relative).collect())
}

/// Reads a JSON line; a later attempt at the same request is none of its own.
fn json_line(text: &str) -> Result<Option<Line>, String> {
    #[derive(Deserialize)]
    struct Decided {
        attempt: Option<u32>,
    }
    #[derive(Deserialize)]
    struct Fields {
        timestamp: Option<f64>,
        decided_at: Option<i64>,
        decision: Option<Decided>,
        input_length: Option<u32>,
        output_length: Option<u32>,
        #[serde(default)]
        hash_ids: Vec<u64>,
    }
    let fields: Fields = serde_json::from_str(text).map_err(|source| source.to_string())?;
    if fields.decision.as_ref().and_then(|decided| decided.attempt).is_some_and(|attempt| attempt > 1) {
        return Ok(None);
    }
    let at_us = match (fields.decided_at, fields.timestamp) {
        (Some(at_us), _) => at_us,
        (None, Some(at_ms)) if at_ms.is_finite() => (at_ms * 1e3).round() as i64,
        _ => return Err(String::from("has neither `timestamp` nor `decided_at`")),
    };
    let Fields { input_length: prompt_tokens, output_length: output_tokens, hash_ids, .. } = fields;
    Ok(Some(Line { at_us, row: TraceRow { at_us: 0, prompt_tokens, output_tokens, hash_ids } }))
}

fn number_line(text: &str) -> Result<Line, String> {
    match text.parse::<f64>() {
        Ok(at_s) if at_s.is_finite() => {
            Ok(Line { at_us: (at_s * 1e6).round() as i64, row: TraceRow::default() })
        }
        _ => Err(format!("`{text}` is not a number of seconds")),
    }
}

/// Positions of the columns of a CSV file.
struct Columns {
    timestamp: usize,
    prompt_tokens: Option<usize>,
    output_tokens: Option<usize>,
}

impl Columns {
    fn of(header: &str) -> Result<Self, String> {
        let find = |name: &str| header.split(',').position(|cell| cell.trim().eq_ignore_ascii_case(name));
        let timestamp = find("TIMESTAMP").ok_or_else(|| {
            format!(
                "starts with `{header}`: neither JSON lines, nor seconds, nor a CSV header with TIMESTAMP"
            )
        })?;
        Ok(Self { timestamp, prompt_tokens: find("ContextTokens"), output_tokens: find("GeneratedTokens") })
    }

    fn line(&self, text: &str) -> Result<Line, String> {
        let cells: Vec<&str> = text.split(',').map(str::trim).collect();
        let tokens = |column: Option<usize>| match column.and_then(|column| cells.get(column)) {
            None => Ok(None),
            Some(cell) => cell.parse().map(Some).map_err(|_| format!("`{cell}` is not a number of tokens")),
        };
        let timestamp = cells.get(self.timestamp).copied().unwrap_or_default();
        let at_us =
            date_us(timestamp).ok_or_else(|| format!("`{timestamp}` is not YYYY-MM-DD HH:MM:SS.ffffff"))?;
        let (prompt_tokens, output_tokens) = (tokens(self.prompt_tokens)?, tokens(self.output_tokens)?);
        let row = TraceRow { prompt_tokens, output_tokens, ..TraceRow::default() };
        Ok(Line { at_us, row })
    }
}

/// Microseconds since 1970 of a date and time of day; a zone is passed over, as a trace has one throughout.
fn date_us(text: &str) -> Option<i64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let time = time.split(['+', 'Z']).next()?;
    let mut time = time.split(':');
    let (hour, minute) = (time.next()?.parse::<i64>().ok()?, time.next()?.parse::<i64>().ok()?);
    let (second, fraction) = time.next().map(|second| second.split_once('.').unwrap_or((second, "0")))?;
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let second = second.parse::<i64>().ok()?;
    let within = (1..=12).contains(&month) && (1..=31).contains(&day);
    if !(within && (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second)) {
        return None;
    }
    let minutes = (days(year, month, day) * 24 + hour) * 60 + minute;
    Some((minutes * 60 + second) * 1_000_000 + digits.parse::<i64>().ok()?)
}

/// Days since 1970-01-01 in the Gregorian calendar: years are counted from March, so that a leap day ends one.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<TraceRow>, LabError> {
        read(&Files::from([(String::from("t"), text.as_bytes().into())]), "t")
    }

    #[test]
    fn azure_tables_are_read_across_midnight() {
        let rows = parsed(
            "TIMESTAMP,ContextTokens,GeneratedTokens\n\
             2023-11-16 23:59:59.9799600,4808,10\n\
             2023-11-17 00:00:01.0000000,34,12\n",
        );
        let rows = rows.unwrap();
        assert_eq!((rows[0].at_us, rows[1].at_us), (0, 1_020_040));
        assert_eq!((rows[1].prompt_tokens, rows[1].output_tokens), (Some(34), Some(12)));
        // Columns in another order, a zone, no fraction.
        let rows = parsed("GeneratedTokens,TIMESTAMP\n3,2024-05-10 00:00:00+00:00\n4,2024-05-10T00:00:02Z\n");
        let rows = rows.unwrap();
        assert_eq!(rows[1].at_us, 2_000_000);
        assert_eq!((rows[0].prompt_tokens, rows[0].output_tokens), (None, Some(3)));
    }

    #[test]
    fn json_lines_and_seconds_are_read_in_order_of_time() {
        let rows = parsed(
            "{\"timestamp\": 40, \"input_length\": 700, \"output_length\": 3, \"hash_ids\": [5, 6]}\n\n\
             {\"timestamp\": 0, \"input_length\": 10, \"output_length\": 1, \"hash_ids\": [7]}\n",
        );
        let rows = rows.unwrap();
        assert_eq!((rows[0].hash_ids.clone(), rows[1].hash_ids.clone()), (vec![7], vec![5, 6]));
        assert_eq!((rows[1].at_us, rows[1].prompt_tokens), (40_000, Some(700)));
        let rows = parsed(
            "{\"decided_at\": 1700000000000007}\n{\"decided_at\": 1700000000000009}\n\
             {\"decided_at\": 1700000000000010, \"decision\": {\"attempt\": 2}}",
        );
        let rows = rows.unwrap();
        assert_eq!((rows.len(), rows[1].at_us), (2, 2));
        let times: Vec<u64> = parsed("1.5\n3\n2.25\n").unwrap().iter().map(|row| row.at_us).collect();
        assert_eq!(times, [0, 750_000, 1_500_000]);
    }

    #[test]
    fn days_are_counted_over_leap_years() {
        assert_eq!(days(1970, 1, 1), 0);
        assert_eq!(days(2000, 3, 1) - days(2000, 2, 28), 2);
        assert_eq!(days(2023, 3, 1) - days(2023, 2, 28), 1);
        // 1,700,000,000 s is 2023-11-14 22:13:20.
        assert_eq!(date_us("2023-11-14 22:13:20"), Some(1_700_000_000_000_000));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, what) in [
            ("", "no requests"),
            ("time,tokens\n1,2\n", "time,tokens"),
            ("TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,4808\nyesterday,3\n", "line 3: `yesterday`"),
            ("TIMESTAMP,ContextTokens\n2023-13-16 18:17:03,4808\n", "line 2"),
            ("TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,many\n", "`many`"),
            ("{\"input_length\": 3}", "line 1: has neither"),
            ("1.0\nsoon\n", "line 2: `soon`"),
        ] {
            let error = parsed(text).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("`t`"), "{error}");
        }
        assert!(read(&Files::new(), "x.csv").unwrap_err().to_string().contains("not handed in"));
    }
}
