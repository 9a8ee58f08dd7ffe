//! From a kubelet's page to points.

use crate::points::Point;
use plimsoll_metrics::parser::{Label, Parser, Sample, SyntaxError};

/// What one page says of a node and its containers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page<'a> {
    /// `None`: the page does not say all that is needed.
    pub node: Option<Point>,
    /// Bytes of swap that the node uses, where that is wanted and told.
    pub node_swap: Option<u64>,
    /// Sorted by namespace, pod and container; only whole ones.
    pub containers: Vec<ContainerPoint<'a>>,
    /// Series of containers that do not say whose they are.
    pub unlabelled: u64,
    /// Containers of which figures are missing.
    pub incomplete: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ContainerPoint<'a> {
    pub namespace: &'a str,
    pub pod: &'a str,
    pub container: &'a str,
    pub point: Point,
    /// Bytes, where that is wanted and told.
    pub swap: Option<u64>,
}

impl<'a> Page<'a> {
    /// The containers of one pod after another.
    pub fn pods(&self) -> impl Iterator<Item = &[ContainerPoint<'a>]> {
        self.containers
            .chunk_by(|a, b| a.namespace == b.namespace && a.pod == b.pod)
    }
}

/// What is read off a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// A container without figures withholds itself only, not its pod.
    pub lenient: bool,
    pub swap: bool,
}

/// Reads a page. `asked_at`, nanoseconds since the epoch, is the time of what has no timestamp.
pub fn decode(page: &[u8], asked_at: i64, reading: Reading) -> Result<Page<'_>, SyntaxError> {
    let mut parser = Parser::new(page)?;
    let mut found = Findings::new(asked_at, reading);
    while let Some(sample) = parser.sample()? {
        found.take(&sample);
    }
    Ok(found.finish())
}

/// The series of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Cpu,
    Memory,
    Start,
    Swap,
}

#[derive(Debug)]
struct Findings<'a> {
    asked_at: i64,
    reading: Reading,
    node: Figures,
    rows: Vec<Row<'a>>,
    /// For each field, the row after the one that last got it: families are mostly in the same order.
    next: [usize; 4],
    unlabelled: u64,
    /// What the name of the sample before means.
    family: (&'a str, Family),
}

/// What a series is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Container(Field),
    Node(Field),
    Other,
}

impl Family {
    fn of(name: &str, reading: Reading) -> Self {
        match name {
            "container_cpu_usage_seconds_total" => Self::Container(Field::Cpu),
            "container_memory_working_set_bytes" => Self::Container(Field::Memory),
            "container_start_time_seconds" => Self::Container(Field::Start),
            "node_cpu_usage_seconds_total" => Self::Node(Field::Cpu),
            "node_memory_working_set_bytes" => Self::Node(Field::Memory),
            "container_swap_usage_bytes" if reading.swap => Self::Container(Field::Swap),
            "node_swap_usage_bytes" if reading.swap => Self::Node(Field::Swap),
            _ => Self::Other,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Row<'a> {
    whose: Whose<'a>,
    figures: Figures,
}

/// In an order that keeps a pod's containers together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Whose<'a> {
    namespace: &'a str,
    pod: &'a str,
    container: &'a str,
}

impl Whose<'_> {
    /// The same; the parser mostly lends the very same texts for them.
    fn is(&self, other: &Self) -> bool {
        let same = |a: &str, b: &str| std::ptr::eq(a, b);
        same(self.pod, other.pod)
            && same(self.namespace, other.namespace)
            && same(self.container, other.container)
            || self == other
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    cpu: Option<u64>,
    memory: Option<u64>,
    start: Option<i64>,
    swap: Option<u64>,
    /// Of the later of CPU and memory, and the line that is on.
    at: i64,
    at_line: usize,
}

impl Figures {
    /// What a later series says replaces what an earlier one said.
    fn overwrite(&mut self, later: &Self) {
        self.cpu = later.cpu.or(self.cpu);
        self.memory = later.memory.or(self.memory);
        self.start = later.start.or(self.start);
        self.swap = later.swap.or(self.swap);
        if later.at_line > self.at_line {
            (self.at, self.at_line) = (later.at, later.at_line);
        }
    }

    fn tell_something(&self) -> bool {
        self.cpu.is_some() || self.memory.is_some() || self.start.is_some()
    }

    /// `None`: something is missing. Nothing that runs uses nothing.
    fn point(&self) -> Option<Point> {
        Some(Point {
            start: self.start.unwrap_or(0),
            at: self.at,
            cpu: self.cpu.filter(|cpu| *cpu != 0)?,
            memory: self.memory.filter(|memory| *memory != 0)?,
        })
    }
}

impl<'a> Findings<'a> {
    fn new(asked_at: i64, reading: Reading) -> Self {
        Self {
            asked_at,
            reading,
            node: Figures::default(),
            rows: Vec::with_capacity(64),
            next: [0; 4],
            unlabelled: 0,
            family: ("", Family::Other),
        }
    }

    fn take(&mut self, sample: &Sample<'a, '_>) {
        // The parser lends the same piece of the page as long as the name is the same.
        if !std::ptr::eq(self.family.0, sample.name) {
            self.family = (sample.name, Family::of(sample.name, self.reading));
        }
        let field = match self.family.1 {
            Family::Container(field) => field,
            Family::Node(field) => return self.node.set(field, sample, self.asked_at),
            Family::Other => return,
        };
        let Some(whose) = whose(sample.labels) else {
            self.unlabelled += 1;
            return;
        };
        let next = &mut self.next[field as usize];
        if self.rows.get(*next).is_none_or(|row| !row.whose.is(&whose)) {
            *next = self.rows.len();
            self.rows.push(Row {
                whose,
                figures: Figures::default(),
            });
        }
        let figures = &mut self.rows[*next].figures;
        *next += 1;
        figures.set(field, sample, self.asked_at);
    }

    fn finish(mut self) -> Page<'a> {
        // Stable: of the same container, the later ones come later.
        self.rows.sort_by(|a, b| a.whose.cmp(&b.whose));
        self.rows.dedup_by(|later, earlier| {
            let same = later.whose == earlier.whose;
            if same {
                earlier.figures.overwrite(&later.figures);
            }
            same
        });
        if self.reading.swap {
            // Swap alone makes no container.
            self.rows.retain(|row| row.figures.tell_something());
        }
        let mut page = Page {
            node: self.node.point(),
            node_swap: self.node.swap,
            containers: Vec::with_capacity(self.rows.len()),
            unlabelled: self.unlabelled,
            incomplete: 0,
        };
        let pods = self
            .rows
            .chunk_by(|a, b| a.whose.namespace == b.whose.namespace && a.whose.pod == b.whose.pod);
        for pod in pods {
            let before = page.containers.len();
            page.containers.extend(pod.iter().filter_map(Row::point));
            let missing = pod.len() - (page.containers.len() - before);
            page.incomplete += missing as u64;
            if missing > 0 && !self.reading.lenient {
                page.containers.truncate(before);
            }
        }
        page
    }
}

impl Figures {
    fn set(&mut self, field: Field, sample: &Sample<'_, '_>, asked_at: i64) {
        // Conversions saturate, and what is no number is nothing.
        match field {
            Field::Cpu => self.cpu = Some((sample.value * 1e9) as u64),
            Field::Memory => self.memory = Some(sample.value as u64),
            Field::Start => {
                self.start = Some(((sample.value * 1e9) as i64).max(0));
                return;
            }
            Field::Swap => {
                self.swap = Some(sample.value as u64);
                return;
            }
        }
        let stamp = sample.timestamp;
        self.at = stamp.map_or(asked_at, |millis| millis.saturating_mul(1_000_000));
        self.at_line = sample.line;
    }
}

impl<'a> Row<'a> {
    fn point(&self) -> Option<ContainerPoint<'a>> {
        Some(ContainerPoint {
            point: self.figures.point()?,
            swap: self.figures.swap,
            namespace: self.whose.namespace,
            pod: self.whose.pod,
            container: self.whose.container,
        })
    }
}

/// `None`: the labels do not tell.
fn whose<'a>(labels: &[Label<'a>]) -> Option<Whose<'a>> {
    let text = |label: &Label<'a>| {
        // What has to be escaped is in no name, nor is a zero byte, which separates names in our own keys.
        let usable = !label.escaped
            && !label.raw.is_empty()
            && memchr::memchr(0, label.raw.as_bytes()).is_none();
        usable.then_some(label.raw)
    };
    // As kubelets write them.
    if let [container, namespace, pod] = labels
        && (container.name, namespace.name, pod.name) == ("container", "namespace", "pod")
    {
        return Some(Whose {
            namespace: text(namespace)?,
            pod: text(pod)?,
            container: text(container)?,
        });
    }
    let find = |name| text(labels.iter().find(|label| label.name == name)?);
    Some(Whose {
        namespace: find("namespace")?,
        pod: find("pod")?,
        container: find("container")?,
    })
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
