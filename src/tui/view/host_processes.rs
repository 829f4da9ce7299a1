//! The processes on the GPUs of a host by GPU: those of the run, and those of others.

use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::event::GpuProcess;
use crate::report::style;
use crate::state::HostState;
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

use super::formatting;
use super::lines::age_text;
use super::section::Section;

pub(super) fn section(model: &Model, host: &HostState, width: usize) -> Section {
    if host.gpu_processes_at == 0 {
        return Section::default();
    }
    let foreign = host.gpu_processes.iter().filter(|process| !process.belongs_to_run).count();
    let count = model.count(host.gpu_processes.len(), "process");
    let title = model.lang.tr_fill("on the GPUs: {}, {} foreign", &[&count, &foreign.to_string()]);
    let mut all: Vec<&GpuProcess> = host.gpu_processes.iter().collect();
    let index = |process: &GpuProcess| host.gpus.iter().find(|gpu| gpu.uuid == process.gpu).map(|gpu| gpu.index);
    all.sort_by_key(|process| (index(process), process.belongs_to_run, process.pid));
    let user_width = all.iter().map(|process| model.sanitize(&process.user).width()).max().unwrap_or(0).min(10);
    let mut lines: Vec<Line<'static>> = all.into_iter().map(|process| row(model, index(process), process, [user_width, width])).collect();
    if lines.is_empty() {
        lines.push(Line::styled(model.lang.tr(" no process uses a GPU"), model.theme.dim()));
    }
    Section { title, state: age_text(model, host.gpu_processes_at), lines }
}

fn row(model: &Model, gpu: Option<u32>, process: &GpuProcess, [user_width, width]: [usize; 2]) -> Line<'static> {
    let gpu = gpu.map_or_else(|| "?".to_owned(), |index| index.to_string());
    let memory = process.memory.map_or_else(|| "-".to_owned(), |mib| format!("{:.1} GiB", mib / 1024.0));
    let lang = model.lang;
    let (owner, status) =
        if process.belongs_to_run { (lang.tr("ours"), DisplayStatus::Ok) } else { (lang.tr("foreign"), DisplayStatus::Warn) };
    let user = formatting::pad(&model.sanitize(&process.user), user_width);
    let text = format!(" {:>8} {memory:>10}  {user} {}", process.pid, model.sanitize(&process.name));
    Line::from(vec![
        Span::raw(format!("   g{gpu:<3} ")),
        Span::styled(formatting::pad(owner, 7), model.theme.status_style(status)),
        Span::raw(style::truncate_text(&text, width.saturating_sub(15))),
    ])
}
