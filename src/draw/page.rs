//! One HTML file: headings, texts, tables and pictures, with its style inside and no outside parts.

/// A page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// Its title.
    pub title: String,
    /// What it holds, from top to bottom.
    pub blocks: Vec<Block>,
}

/// A part of a page. Texts are plain: what they hold is shown as it is.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A heading, listed in the contents under the page's title.
    Heading {
        /// Its anchor, a plain word.
        id: String,
        /// Its text.
        text: String,
    },
    /// A paragraph.
    Text(String),
    /// A table.
    Table(Table),
    /// A picture with its caption.
    Figure(Figure),
    /// The place of a picture that cannot be made yet.
    Missing {
        /// Its anchor, a plain word.
        id: String,
        /// What it would be.
        caption: String,
        /// What to do for it.
        how: String,
    },
}

/// Rows under a head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// The columns' names.
    pub head: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Its text.
    pub text: String,
    /// Its tone.
    pub tone: Tone,
}

/// How a cell looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Words.
    #[default]
    Plain,
    /// A number, set to the right.
    Number,
    /// A good verdict.
    Good,
    /// A verdict to look at.
    Bad,
    /// Not known yet.
    Open,
}

/// A picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// Its anchor, a plain word.
    pub id: String,
    /// The drawing, trusted: it goes into the page as it is.
    pub svg: String,
    /// What is seen.
    pub caption: String,
    /// What to think of it; may be empty.
    pub note: String,
    /// A file beside the page with the same picture; may be empty.
    pub file: String,
}

impl Cell {
    /// Makes a cell of words.
    #[must_use]
    pub fn words(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: Tone::Plain }
    }

    /// Makes a cell of a number.
    #[must_use]
    pub fn number(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: Tone::Number }
    }
}

const STYLE: &str = include_str!("page.css");

/// Writes a page as HTML.
#[must_use]
pub fn html(page: &Page) -> String {
    let title = escaped(&page.title);
    let contents: String = page.blocks.iter().filter_map(entry).collect();
    let body: String = page.blocks.iter().map(block).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n\
         <nav>{contents}</nav>\n{body}</main>\n</body>\n</html>\n"
    )
}

fn entry(block: &Block) -> Option<String> {
    match block {
        Block::Heading { id, text } => Some(format!("<a href=\"#{}\">{}</a>\n", escaped(id), escaped(text))),
        _ => None,
    }
}

fn block(block: &Block) -> String {
    match block {
        Block::Heading { id, text } => format!("<h2 id=\"{}\">{}</h2>\n", escaped(id), escaped(text)),
        Block::Text(text) => format!("<p>{}</p>\n", escaped(text)),
        Block::Table(table) => written(table),
        Block::Figure(figure) => shown(figure),
        Block::Missing { id, caption, how } => format!(
            "<figure id=\"{}\" class=\"missing\"><p>Not measured yet.</p><p>{}</p>\
             <figcaption>{}</figcaption></figure>\n",
            escaped(id),
            escaped(how),
            escaped(caption)
        ),
    }
}

fn shown(figure: &Figure) -> String {
    let note = match figure.note.as_str() {
        "" => String::new(),
        note => format!("<p class=\"note\">{}</p>", escaped(note)),
    };
    let file = match figure.file.as_str() {
        "" => String::new(),
        file => format!(" <a href=\"{0}\">{0}</a>", escaped(file)),
    };
    format!(
        "<figure id=\"{}\"><div class=\"card\">{}</div><figcaption>{}{file}</figcaption>{note}</figure>\n",
        escaped(&figure.id),
        figure.svg,
        escaped(&figure.caption),
    )
}

fn written(table: &Table) -> String {
    let head: String = table.head.iter().map(|h| format!("<th>{}</th>", escaped(h))).collect();
    let rows: String = table
        .rows
        .iter()
        .map(|row| {
            let cells: String = row
                .iter()
                .map(|cell| format!("<td class=\"{}\">{}</td>", class(cell.tone), escaped(&cell.text)))
                .collect();
            format!("<tr>{cells}</tr>\n")
        })
        .collect();
    format!(
        "<div class=\"wide\"><table><caption>{}</caption>\n<thead><tr>{head}</tr></thead>\n\
         <tbody>\n{rows}</tbody></table></div>\n",
        escaped(&table.caption)
    )
}

fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "plain",
        Tone::Number => "number",
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Open => "open",
    }
}

/// Returns a text with the characters that HTML and XML would read as their own written otherwise.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(c),
        }
    }
    safe
}
