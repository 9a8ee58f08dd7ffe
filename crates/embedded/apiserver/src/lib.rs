//! The embedded Kubernetes API server: for `plimsoll up`, tests and simulation. In production there is the real one.

pub mod aggregate;
mod aside;
pub mod auth;
pub mod catalogue;
mod client;
pub mod codec;
mod controllers;
mod conversion;
pub mod crd;
pub mod credentials;
pub mod custom;
mod definitions;
pub mod discovery;
pub mod embed;
mod expressions;
mod gaps;
#[cfg(test)]
mod growth;
pub mod hooks;
pub mod kinds;
pub mod managed;
mod met;
pub mod openapi;
pub mod patch;
pub mod paths;
mod policies;
pub mod resource;
pub mod rest;
mod rights;
pub mod schema;
pub mod served;
pub mod server;
mod services;
pub mod store;
pub mod table;

use plimsoll_apimachinery::{answer, depth, field, request, selector, status};
