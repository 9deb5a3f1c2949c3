//! What a picture is made of: panels, axes and marks, in the units of the data.

/// A colour as red, green, blue.
pub type Ink = (u8, u8, u8);

/// Panels under one title.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// What is seen, in one line.
    pub title: String,
    /// Conditions, in one line; may be empty.
    pub subtitle: String,
    /// What colours and shapes mean, in one row or more above the panels.
    pub legend: Vec<Key>,
    /// The panels, row by row.
    pub panels: Vec<Panel>,
    /// Panels a row, at least 1.
    pub columns: usize,
    /// Width and height of each panel, axes included, pixels.
    pub panel_size: (u32, u32),
}

/// One entry of a legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Its text.
    pub label: String,
    /// Its colour.
    pub ink: Ink,
    /// Its swatch.
    pub shape: Shape,
}

/// How a point or a swatch looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A filled circle.
    Circle,
    /// A filled square.
    Square,
    /// A filled triangle.
    Triangle,
    /// A filled diamond.
    Diamond,
    /// A slanted cross.
    Cross,
    /// A hatched box.
    Hatched,
    /// A short line.
    Line,
}

/// One pair of axes and what is drawn between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    /// What tells it from the other panels; may be empty.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn, the first at the bottom.
    pub marks: Vec<Mark>,
}

/// One axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// Its quantity and unit.
    pub label: String,
    /// How values become lengths.
    pub scale: Scale,
    /// Its ends; absent: those of the data with a margin.
    pub range: Option<(f64, f64)>,
    /// Values with their labels; empty: round numbers.
    pub ticks: Vec<(f64, String)>,
    /// Values are shares, shown in percent.
    pub percent: bool,
    /// No lines across the panel.
    pub no_grid: bool,
}

/// How values become lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps are equal lengths; without a range it starts at zero where the data are near it.
    #[default]
    Linear,
    /// Equal ratios are equal lengths; values must be positive.
    Log,
}

/// A value with the ends of its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Position on the horizontal axis.
    pub x: f64,
    /// Lower end.
    pub low: f64,
    /// The value.
    pub value: f64,
    /// Upper end.
    pub high: f64,
}

/// A bar, one of a stack or of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// Its left and right edges.
    pub x: (f64, f64),
    /// Its lower and upper edges.
    pub y: (f64, f64),
    /// Its colour.
    pub ink: Ink,
    /// Whether it is hatched instead of filled.
    pub hatched: bool,
}

/// What is drawn in a panel.
#[derive(Clone, Debug, PartialEq)]
pub enum Mark {
    /// A line through values, its intervals as a band, its label at the right end.
    Line {
        /// The values, from left to right.
        points: Vec<Spread>,
        /// Its colour.
        ink: Ink,
        /// How its points look.
        shape: Shape,
        /// Its width, pixels.
        width: f64,
        /// Its label; may be empty.
        label: String,
    },
    /// Bars.
    Bars(Vec<Bar>),
    /// Vertical intervals, such as those of bars.
    ErrorBars {
        /// The intervals.
        points: Vec<Spread>,
        /// Their colour.
        ink: Ink,
    },
    /// Many points.
    Dots {
        /// Their positions.
        points: Vec<(f64, f64)>,
        /// Their colour.
        ink: Ink,
    },
    /// Where both axes have the same value.
    Identity,
    /// A point with its interval and its name beside it.
    Named {
        /// Position on the horizontal axis with its interval: low, value, high.
        x: (f64, f64, f64),
        /// Position on the vertical axis with its interval: low, value, high.
        y: (f64, f64, f64),
        /// Its name.
        label: String,
        /// Its colour.
        ink: Ink,
        /// How it looks.
        shape: Shape,
    },
    /// Bins as a stepped outline over a light fill, from edges and heights (one fewer).
    Steps {
        /// The bins' edges, rising.
        edges: Vec<f64>,
        /// The bins' heights.
        heights: Vec<f64>,
        /// Its colour.
        ink: Ink,
    },
    /// A box from the first to the third quartile with its median and whiskers.
    Box {
        /// Its left and right edges.
        x: (f64, f64),
        /// Whisker, quartile, median, quartile, whisker, rising.
        at: [f64; 5],
        /// Its colour.
        ink: Ink,
    },
}
