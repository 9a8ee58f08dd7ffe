//! Which plugins run where: defaults and wishes merged, `multiPoint` spread over the points.

use plimsoll_sched::framework::Plugin;

use super::types::{Enabled, PluginSet, Plugins};

/// What runs without further words, in the order of 1.36, and with which weight.
pub const DEFAULTS: [(&str, i32); 20] = [
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("NodeDeclaredFeatures", 0),
];

/// Where plugins can have a say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    PreFilter,
    Filter,
    PostFilter,
    Reserve,
    PreScore,
    Score,
    PreBind,
    Bind,
    PostBind,
    Permit,
    PreEnqueue,
    QueueSort,
}

impl Point {
    /// In the order in which the original looks for mistakes.
    pub const ALL: [Self; 12] = [
        Self::PreFilter,
        Self::Filter,
        Self::PostFilter,
        Self::Reserve,
        Self::PreScore,
        Self::Score,
        Self::PreBind,
        Self::Bind,
        Self::PostBind,
        Self::Permit,
        Self::PreEnqueue,
        Self::QueueSort,
    ];

    fn type_name(self) -> String {
        format!("{self:?}Plugin")
    }

    fn set(self, plugins: &Plugins) -> &PluginSet {
        match self {
            Self::PreFilter => &plugins.pre_filter,
            Self::Filter => &plugins.filter,
            Self::PostFilter => &plugins.post_filter,
            Self::Reserve => &plugins.reserve,
            Self::PreScore => &plugins.pre_score,
            Self::Score => &plugins.score,
            Self::PreBind => &plugins.pre_bind,
            Self::Bind => &plugins.bind,
            Self::PostBind => &plugins.post_bind,
            Self::Permit => &plugins.permit,
            Self::PreEnqueue => &plugins.pre_enqueue,
            Self::QueueSort => &plugins.queue_sort,
        }
    }
}

/// Where a plugin has something to say.
fn points(plugin: Plugin) -> &'static [Point] {
    use Point::{
        Bind, Filter, Permit, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort,
        Reserve, Score,
    };
    match plugin {
        Plugin::SchedulingGates => &[PreEnqueue],
        Plugin::PrioritySort => &[QueueSort],
        Plugin::NodeUnschedulable | Plugin::NodeName => &[Filter],
        Plugin::TaintToleration => &[Filter, PreScore, Score],
        Plugin::NodeAffinity
        | Plugin::NodeResourcesFit
        | Plugin::PodTopologySpread
        | Plugin::InterPodAffinity => &[PreFilter, Filter, PreScore, Score],
        Plugin::NodePorts
        | Plugin::VolumeRestrictions
        | Plugin::NodeVolumeLimits
        | Plugin::VolumeZone
        | Plugin::NodeDeclaredFeatures => &[PreFilter, Filter],
        Plugin::VolumeBinding => &[PreFilter, Filter, Reserve, PreBind, PreScore, Score],
        Plugin::DynamicResources => &[
            PreEnqueue, PreFilter, Filter, PostFilter, Score, Reserve, PreBind,
        ],
        Plugin::DefaultPreemption => &[PreEnqueue, PostFilter],
        Plugin::NodeResourcesBalancedAllocation => &[PreScore, Score],
        Plugin::ImageLocality => &[Score],
        Plugin::DefaultBinder => &[Bind],
        Plugin::GangScheduling => &[PreEnqueue, Permit],
        Plugin::LoadAwareScheduling => &[Filter, Score],
        Plugin::Extender => &[],
    }
}

fn find(name: &str) -> Option<Plugin> {
    Plugin::parse(name).filter(|plugin| *plugin != Plugin::Extender)
}

/// The wishes with the defaults, as the original writes them down.
pub fn merged(wishes: &Plugins) -> Plugins {
    let defaults: Vec<Enabled> = DEFAULTS
        .iter()
        .map(|(name, weight)| Enabled {
            name: (*name).to_owned(),
            weight: *weight,
        })
        .collect();
    let mut merged = wishes.clone();
    merged.multi_point = PluginSet {
        enabled: merge(&defaults, &wishes.multi_point),
        disabled: wishes.multi_point.disabled.clone(),
    };
    merged
}

/// Defaults stay in order, with the weight that is wished; the rest of the wishes follow.
fn merge(defaults: &[Enabled], wishes: &PluginSet) -> Vec<Enabled> {
    let is_out = |name: &str| wishes.disabled.iter().any(|out| out.name == name);
    let mut enabled = Vec::new();
    let mut replaced = vec![false; wishes.enabled.len()];
    if !is_out("*") {
        for plugin in defaults.iter().filter(|plugin| !is_out(&plugin.name)) {
            let wish = wishes
                .enabled
                .iter()
                .rposition(|wish| wish.name == plugin.name);
            match wish {
                Some(index) => {
                    replaced[index] = true;
                    enabled.push(wishes.enabled[index].clone());
                }
                None => enabled.push(plugin.clone()),
            }
        }
    }
    let others = wishes.enabled.iter().zip(&replaced);
    enabled.extend(
        others
            .filter(|(_, replaced)| !**replaced)
            .map(|(wish, _)| wish.clone()),
    );
    enabled
}

/// What runs at each point, in order, and the weights of scores.
#[derive(Debug, Default)]
pub struct Lineup {
    lists: Vec<(Point, Vec<Plugin>)>,
    pub weights: Vec<(Plugin, i64)>,
}

impl Lineup {
    pub fn at(&self, point: Point) -> &[Plugin] {
        let list = self.lists.iter().find(|(other, _)| *other == point);
        list.map_or(&[], |(_, plugins)| plugins.as_slice())
    }

    pub fn weight(&self, plugin: Plugin) -> i64 {
        let known = self.weights.iter().find(|(other, _)| *other == plugin);
        known.map_or(1, |(_, weight)| *weight)
    }
}

/// Spreads merged plugins over the points. `name` is the profile's.
pub fn line_up(plugins: &Plugins, name: &str) -> Result<Lineup, String> {
    let mut lineup = Lineup::default();
    // First what is wished for single points, then the rest: that is where mistakes show first.
    for point in Point::ALL {
        let mut list: Vec<Plugin> = Vec::new();
        for wish in &point.set(plugins).enabled {
            let Some(plugin) = find(&wish.name) else {
                return Err(format!(
                    "{} {:?} does not exist",
                    point.type_name(),
                    wish.name
                ));
            };
            if !points(plugin).contains(&point) {
                return Err(format!(
                    "plugin {:?} does not extend {} plugin",
                    wish.name,
                    point.type_name()
                ));
            }
            if list.contains(&plugin) {
                return Err(twice(plugin, point));
            }
            list.push(plugin);
        }
        lineup.lists.push((point, list));
    }
    for (point, explicit) in &mut lineup.lists {
        spread(*point, explicit, plugins)?;
    }
    let sorting = lineup.at(Point::QueueSort).len();
    if sorting != 1 {
        return Err(format!(
            "only one queue sort plugin required for profile with scheduler name {name:?}, but got {sorting}"
        ));
    }
    if lineup.at(Point::Bind).is_empty() {
        return Err(format!(
            "at least one bind plugin is needed for profile with scheduler name {name:?}"
        ));
    }
    lineup.weights = weights(plugins, &lineup)?;
    Ok(lineup)
}

fn twice(plugin: Plugin, point: Point) -> String {
    format!(
        "plugin {:?} already registered as {:?}",
        plugin.name(),
        point.type_name()
    )
}

/// Adds those of `multiPoint` that have something to say here.
fn spread(point: Point, list: &mut Vec<Plugin>, plugins: &Plugins) -> Result<(), String> {
    let set = point.set(plugins);
    let is_out = |name: &str| set.disabled.iter().any(|out| out.name == name);
    if is_out("*") {
        return Ok(());
    }
    let (mut both, mut general) = (Vec::new(), Vec::new());
    for wish in &plugins.multi_point.enabled {
        let Some(plugin) = find(&wish.name) else {
            return Err(format!(
                "{} {:?} does not exist",
                point.type_name(),
                wish.name
            ));
        };
        if !points(plugin).contains(&point) || is_out(&wish.name) {
            continue;
        }
        if list.contains(&plugin) {
            both.push(plugin);
        } else if general.contains(&plugin) {
            return Err(twice(plugin, point));
        } else {
            general.push(plugin);
        }
    }
    let (first, last): (Vec<Plugin>, Vec<Plugin>) =
        list.iter().partition(|plugin| both.contains(plugin));
    *list = first.into_iter().chain(general).chain(last).collect();
    Ok(())
}

fn weights(plugins: &Plugins, lineup: &Lineup) -> Result<Vec<(Plugin, i64)>, String> {
    let mut weights: Vec<(Plugin, i64)> = Vec::new();
    let mut total = 0_i64;
    for wish in plugins
        .score
        .enabled
        .iter()
        .chain(&plugins.multi_point.enabled)
    {
        let Some(plugin) =
            find(&wish.name).filter(|plugin| points(*plugin).contains(&Point::Score))
        else {
            continue;
        };
        if weights.iter().any(|(other, _)| *other == plugin) {
            continue;
        }
        let weight = match wish.weight {
            0 => 1,
            given => i64::from(given),
        };
        // In the original's arithmetic, which takes a sum below zero for one that is too large, too.
        let most = weight.wrapping_mul(100);
        if most > i64::MAX.wrapping_sub(total) {
            return Err("score plugins: total score of Score plugins could overflow".into());
        }
        total += most;
        weights.push((plugin, weight));
    }
    weights.retain(|(plugin, _)| lineup.at(Point::Score).contains(plugin));
    Ok(weights)
}
