//! What chat templates expect of Python: `json.dumps` and `strftime`, to the byte.
//!
//! A template's tokens are counted on its text, so a missing space after a comma miscounts every
//! request with tools.

use std::io;

use minijinja::{Error, ErrorKind, Value, value::Kwargs};
use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, Serializer};

use crate::domain::Timestamp;

/// The `tojson` filter as Hugging Face's templates have it: `json.dumps(x, ensure_ascii=False)` with
/// `indent`, `separators`, `sort_keys` and `ensure_ascii` accepted.
///
/// # Errors
/// When a value has no JSON form.
pub(super) fn tojson(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let ascii: Option<bool> = kwargs.get("ensure_ascii")?;
    let indent: Option<usize> = kwargs.get("indent")?;
    let separators: Option<Vec<String>> = kwargs.get("separators")?;
    let sort: Option<bool> = kwargs.get("sort_keys")?;
    kwargs.assert_all_used()?;
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => {
            return Err(Error::new(ErrorKind::InvalidOperation, "separators must be two texts"));
        }
        None if indent.is_some() => (String::from(","), String::from(": ")),
        None => (String::from(", "), String::from(": ")),
    };
    let style = Style { item, key, indent, ascii: ascii.unwrap_or(false), depth: 0, empty: false };
    let unserialisable = |e: serde_json::Error| {
        Error::new(ErrorKind::InvalidOperation, "cannot be written as JSON").with_source(e)
    };
    let mut out = Vec::with_capacity(128);
    let mut writer = Serializer::with_formatter(&mut out, style);
    if sort.unwrap_or(false) {
        let mut json = serde_json::to_value(value).map_err(unserialisable)?;
        json.sort_all_objects();
        json.serialize(&mut writer)
    } else {
        value.serialize(&mut writer)
    }
    .map_err(unserialisable)?;
    let text = String::from_utf8(out)
        .map_err(|e| Error::new(ErrorKind::InvalidOperation, "cannot be written as JSON").with_source(e))?;
    Ok(Value::from_safe_string(text))
}

/// Python's spelling of JSON.
struct Style {
    item: String,
    key: String,
    indent: Option<usize>,
    ascii: bool,
    depth: usize,
    empty: bool,
}

impl Style {
    fn open<W: ?Sized + io::Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.empty = true;
        writer.write_all(bracket)
    }

    fn close<W: ?Sized + io::Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if !self.empty {
            self.new_line(writer)?;
        }
        self.empty = false;
        writer.write_all(bracket)
    }

    fn element<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(self.item.as_bytes())?;
        }
        self.empty = false;
        self.new_line(writer)
    }

    fn new_line<W: ?Sized + io::Write>(&self, writer: &mut W) -> io::Result<()> {
        let Some(indent) = self.indent else { return Ok(()) };
        writer.write_all(b"\n")?;
        (0..self.depth * indent).try_for_each(|_| writer.write_all(b" "))
    }
}

impl Formatter for Style {
    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.element(writer, first)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.element(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(self.key.as_bytes())
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(float(value).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, text: &str) -> io::Result<()> {
        if !self.ascii {
            return writer.write_all(text.as_bytes());
        }
        let mut units = [0_u16; 2];
        for c in text.chars() {
            if c.is_ascii() {
                writer.write_all(&[c as u8])?;
            } else {
                for unit in c.encode_utf16(&mut units) {
                    write!(writer, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }

    fn write_char_escape<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        let short: &[u8] = match escape {
            CharEscape::Quote => b"\\\"",
            CharEscape::ReverseSolidus => b"\\\\",
            CharEscape::Solidus => b"/",
            CharEscape::Backspace => b"\\b",
            CharEscape::FormFeed => b"\\f",
            CharEscape::LineFeed => b"\\n",
            CharEscape::CarriageReturn => b"\\r",
            CharEscape::Tab => b"\\t",
            CharEscape::AsciiControl(byte) => return write!(writer, "\\u{byte:04x}"),
        };
        writer.write_all(short)
    }
}

/// Writes a float as Python's `repr` does: exponents below 1e-4 and from 1e16, signed, two digits.
fn float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value == 0.0 || (-4..16).contains(&exponent) {
        return format!("{value:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Formats an instant in UTC by Python's `strftime` codes; an unknown code stays as written.
pub(super) fn strftime(format: &str, now: Timestamp) -> String {
    let seconds = now.unix_us() / 1_000_000;
    let days = seconds / 86_400;
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let (year, month, day) = civil_date(days);
    let month_name = MONTHS[usize::try_from(month - 1).unwrap_or(0) % 12];
    let day_name = DAYS[usize::try_from(days % 7).unwrap_or(0)];
    let mut out = String::with_capacity(format.len() + 8);
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('d') => out.push_str(&format!("{day:02}")),
            Some('m') => out.push_str(&format!("{month:02}")),
            Some('Y') => out.push_str(&year.to_string()),
            Some('y') => out.push_str(&format!("{:02}", year % 100)),
            Some('b') => out.push_str(&month_name[..3]),
            Some('B') => out.push_str(month_name),
            Some('a') => out.push_str(&day_name[..3]),
            Some('A') => out.push_str(day_name),
            Some('H') => out.push_str(&format!("{hour:02}")),
            Some('I') => out.push_str(&format!("{:02}", (hour + 11) % 12 + 1)),
            Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some('M') => out.push_str(&format!("{minute:02}")),
            Some('S') => out.push_str(&format!("{second:02}")),
            Some('%') => out.push('%'),
            Some(other) => out.extend(['%', other]),
            None => out.push('%'),
        }
    }
    out
}

/// Turns days since 1970-01-01 into year, month and day of the Gregorian calendar.
fn civil_date(days: u64) -> (u64, u64, u64) {
    // Eras of 400 years that start on 1 March, so that the leap day is the last of its year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dumps(value: serde_json::Value, arguments: &str) -> String {
        let mut env = minijinja::Environment::new();
        env.add_filter("tojson", tojson);
        let source = format!("{{{{ x|tojson({arguments}) }}}}");
        env.render_str(&source, minijinja::context! { x => Value::from_serialize(value) }).unwrap()
    }

    /// The right-hand sides are what CPython 3.11's `json.dumps` prints.
    #[test]
    fn writes_json_as_python_does() {
        let value = json!({"b": [1, 2.0, 1e16, 1e-5, 0.0001, -0.0, null, true], "a": {"é<&'\"": "\u{1}\n/"}, "e": [], "f": {}});
        assert_eq!(
            dumps(value.clone(), ""),
            r#"{"b": [1, 2.0, 1e+16, 1e-05, 0.0001, -0.0, null, true], "a": {"é<&'\"": "\u0001\n/"}, "e": [], "f": {}}"#
        );
        assert_eq!(
            dumps(value, "sort_keys=true, separators=[',', ':'], ensure_ascii=true"),
            r#"{"a":{"\u00e9<&'\"":"\u0001\n/"},"b":[1,2.0,1e+16,1e-05,0.0001,-0.0,null,true],"e":[],"f":{}}"#
        );
        assert_eq!(
            dumps(json!({"a": [1, {}], "b": []}), "indent=2"),
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}"
        );
        assert_eq!(dumps(json!("😀"), "ensure_ascii=true"), "\"\\ud83d\\ude00\"");
    }

    #[test]
    fn formats_dates() {
        let at = |seconds: u64| Timestamp::from_unix_us(seconds * 1_000_000);
        assert_eq!(strftime("%d %b %Y", at(1_764_460_800)), "30 Nov 2025");
        assert_eq!(
            strftime("%A %a %B %y-%m %H:%M:%S %I%p %% %q%", at(951_827_696)),
            "Tuesday Tue February 00-02 12:34:56 12PM % %q%"
        );
        assert_eq!(strftime("%Y-%m-%d %I%p", at(0)), "1970-01-01 12AM");
    }
}
