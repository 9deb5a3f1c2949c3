//! The page: what was asked, the paper's numbers beside ours, every figure, tables, settings.

use super::{
    inputs::Inputs,
    list::{FIGURES, FigureEntry},
    measures,
    notes::{Note, Notes, Verdict},
    paper, tables,
};
use crate::draw::page::{Block, Cell, Figure, Page, Table, Tone};

const ABOUT: [&str; 3] = [
    "BEAR sends each request to the model with the best predicted score less cost among the instances that are \
     expected to return the first token within the request's own target. This page repeats the figures of the \
     paper that proposed it, in virtual time: the router that serves, over simulated engines that follow the \
     batching rules of vLLM and the batch times of a roofline with noise.",
    "Every router sees the same requests, predictors, prices and snapshots; options that a router leaves open \
     are searched on other seeds, and the best at each point is compared. Numbers are means over seeds with 95% \
     intervals (Student's t); margins are ratios of the same seed.",
    "Nothing here was timed on a clock: the same scenarios and seeds give the same page.",
];

/// Builds the page; `drawn` holds the figures' drawings in their order.
pub(super) fn page(inputs: &Inputs, notes: &Notes, drawn: Vec<Option<String>>) -> Page {
    let mut blocks: Vec<Block> = ABOUT.iter().map(|text| Block::Text((*text).into())).collect();
    blocks.push(heading("numbers", "The paper's numbers and ours"));
    blocks.push(Block::Table(numbers(inputs, notes)));
    blocks.push(heading("margins", "Margins"));
    blocks.extend(tables::margins(inputs));
    blocks.extend(tables::reasons(inputs));
    blocks.push(heading("measures", "Everything measured"));
    blocks.push(measures::by_router(inputs));
    blocks.push(heading("figures", "Figures"));
    for (figure, svg) in FIGURES.iter().zip(drawn) {
        blocks.push(shown(figure, svg, notes));
        if figure.number == 14 {
            blocks.extend(tables::staleness_parts(inputs));
        }
    }
    blocks.push(heading("robustness", "Wrong calibration, other predictors"));
    blocks.extend(tables::robustness(inputs));
    blocks.push(heading("world", "Scores, prices, settings"));
    blocks.extend(tables::world(inputs));
    Page { title: "BEAR in the lab: the paper's figures".into(), blocks }
}

fn heading(id: &str, text: &str) -> Block {
    Block::Heading { id: id.into(), text: text.into() }
}

fn shown(figure: &FigureEntry, svg: Option<String>, notes: &Notes) -> Block {
    let caption = format!("Figure {}. {}", figure.number, figure.caption);
    match svg {
        Some(svg) => Block::Figure(Figure {
            id: figure.id(),
            svg,
            caption,
            note: notes.figure(&figure.id()).map(reason).unwrap_or_default(),
            file: format!("{}.svg", figure.id()),
        }),
        None => Block::Missing { id: figure.id(), caption, how: how(figure) },
    }
}

fn how(figure: &FigureEntry) -> String {
    format!("Run `bear lab run {}`, then `bear lab figures` again.", figure.scenarios.join(" "))
}

fn reason(note: &Note) -> String {
    let verdict = match note.verdict {
        Verdict::Agrees => "Agrees with the paper",
        Verdict::Differs => "Differs from the paper",
    };
    if note.text.is_empty() { format!("{verdict}.") } else { format!("{verdict}: {}", note.text) }
}

fn numbers(inputs: &Inputs, notes: &Notes) -> Table {
    let head = ["Figure", "What", "Paper", "Ours", "95% interval", "Ours / paper", "Verdict", "Why"];
    let rows = paper::ROWS
        .iter()
        .map(|row| {
            let ours = (row.ours)(inputs);
            let ratio = ours.zip(row.value).map_or(String::new(), |(o, p)| format!("{:.2}", o.mean / p));
            let note = notes.row(&row.id());
            vec![
                Cell::number(row.figure.to_string()),
                Cell::words(row.what),
                Cell::number(row.paper),
                ours.map_or_else(open, |o| Cell::number(tables::percent(o.mean))),
                Cell::number(ours.map_or_else(String::new, |o| tables::ends(o, tables::percent))),
                Cell::number(ratio),
                verdict(note, ours.is_some()),
                Cell::words(note.map(|n| n.text.clone()).unwrap_or_default()),
            ]
        })
        .collect();
    Table {
        caption: "What the paper states and what the lab found. An error over requests of one seed has no \
                  interval."
            .into(),
        head: head.map(String::from).into(),
        rows,
    }
}

fn open() -> Cell {
    Cell { text: "not measured".into(), tone: Tone::Open }
}

fn verdict(note: Option<&Note>, measured: bool) -> Cell {
    let (text, tone) = match note.filter(|_| measured).map(|n| n.verdict) {
        Some(Verdict::Agrees) => ("agrees", Tone::Good),
        Some(Verdict::Differs) => ("differs", Tone::Bad),
        None => ("not judged", Tone::Open),
    };
    Cell { text: text.into(), tone }
}
