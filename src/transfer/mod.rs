//! Files between the laptop and hosts: lists trees, compares, streams, proves. One session a host, through any `remote::Remote`; the host side is
//! `assets/transfer.sh`, which runs on the host or inside a container.
//!
//! A caller surveys each host (`survey_host`: what would change), then pushes to all of them (`push_tree`), or pulls from each (`pull_tree`).

pub(crate) mod compare;
mod content_pieces;
mod digest;
pub(crate) mod entry;
pub(crate) mod error;
mod host_file_reader;
pub(crate) mod host_files;
mod host_hello;
pub(crate) mod host_stream;
mod listing;
mod local_dir;
mod local_parts;
pub(crate) mod local_tree;
mod part_file;
pub(crate) mod progress;
pub(crate) mod pull;
pub(crate) mod pull_survey;
pub(crate) mod push;
mod push_big_file;
#[cfg(test)]
mod scripted_host;
#[cfg(test)]
mod session_tests;
pub(crate) mod survey;
mod tar_reader;
mod tar_writer;
pub(crate) mod tree_source;
mod upload;

pub(crate) use local_parts::NONCE_DIGITS;
