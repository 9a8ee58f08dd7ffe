//! Nodes, as far as scheduling reads them.

use super::amounts::Amounts;
use super::pod::Taint;
use super::selector::Labels;
use super::symbol::Symbol;

#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub name: Symbol,
    pub uid: Box<str>,
    pub labels: Labels,
    pub annotations: Labels,
    pub taints: Box<[Taint]>,
    pub unschedulable: bool,
    pub allocatable: Amounts,
    /// How many pods it takes.
    pub pods: i64,
    /// Every name of every image it holds, with the image's size.
    pub images: Box<[(Symbol, i64)]>,
    /// Type and status.
    pub conditions: Box<[(Symbol, Symbol)]>,
    pub features: Box<[Symbol]>,
}
