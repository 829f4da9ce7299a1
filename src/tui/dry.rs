//! A dashboard without a terminal, for benchmarks and fuzzing: it draws as the one on the screen does, and what a terminal would be told is counted.
//!
//! Uses the app and the panes.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

use crate::report::sanitize::Cleaner;

use super::app::{App, Screen};
use super::feed::{Note, Role};
use super::pen::Pen;
use super::theme::Theme;
use super::view;

/// A dashboard that nobody sees.
pub struct Dry {
    app: App,
    terminal: Terminal<Pen<Counted>>,
    told: Arc<AtomicUsize>,
}

/// Counts what is written.
struct Counted(Arc<AtomicUsize>);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.fetch_add(bytes.len(), Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Dry {
    /// Of so many columns and rows.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(width: u16, height: u16) -> io::Result<Dry> {
        let told = Arc::new(AtomicUsize::new(0));
        let options = TerminalOptions { viewport: Viewport::Fixed(Rect::new(0, 0, width, height)) };
        let terminal = Terminal::with_options(Pen::new(Counted(told.clone())), options)?;
        let app = App::new(Role::Onlooker, Cleaner::default(), Theme::new(super::theme::Skin::Dark, false));
        Ok(Dry { app, terminal, told })
    }

    /// Takes what is told.
    pub fn hear(&mut self, note: Note) {
        self.app.hear(note);
    }

    /// Shows another screen.
    pub fn show(&mut self, screen: Screen) {
        self.app.screen = screen;
    }

    /// Draws a frame; the bytes that a terminal would be told.
    ///
    /// # Errors
    /// When it cannot be drawn.
    pub fn frame(&mut self) -> io::Result<usize> {
        let before = self.told.load(Ordering::Relaxed);
        self.terminal.draw(|frame| view::draw(frame, &mut self.app))?;
        Ok(self.told.load(Ordering::Relaxed) - before)
    }

    /// Draws a frame; what its cells show, one after the other.
    ///
    /// # Errors
    /// When it cannot be drawn.
    pub fn cells(&mut self) -> io::Result<String> {
        let frame = self.terminal.draw(|frame| view::draw(frame, &mut self.app))?;
        Ok(frame.buffer.content.iter().map(|cell| cell.symbol()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, EventKind, GpuSample, RunInfo};

    const HOSTS: u32 = 64;

    /// What every host tells in a second at work; every value differs from that of the second before.
    fn told(dry: &mut Dry, second: u32) {
        let at = 1_795_262_400_000 + i64::from(second) * 1000;
        for host in 0..HOSTS {
            let gpu = |index: u32| {
                let wave = ((host * 7 + index * 13 + second * 5) % 40) as f32;
                GpuSample {
                    index,
                    utilization: Some(60.0 + wave),
                    memory_used: Some(60_000.0 + wave * 100.0),
                    memory_total: Some(81_559.0),
                    power: Some(500.0 + wave * 5.0),
                    power_limit: Some(700.0),
                    temperature: Some(50.0 + wave / 2.0),
                    ..GpuSample::default()
                }
            };
            let kind = EventKind::Gpus { host, gpus: (0..8).map(gpu).collect() };
            dry.hear(Note::Event(Event { seq: 10, at, kind }));
        }
        dry.hear(Note::Now(at));
    }

    #[test]
    fn a_frame_in_which_512_gpus_changed_is_small() {
        let mut dry = Dry::new(200, 60).expect("a dashboard");
        let hosts = (0..HOSTS).map(|host| format!("gpu{host:02}")).collect();
        let info = RunInfo { name: "many".to_owned(), hosts, ..RunInfo::default() };
        dry.hear(Note::Event(Event { seq: 1, at: 1_795_262_400_000, kind: EventKind::RunStarted(info) }));
        dry.show(Screen::Gpus);
        told(&mut dry, 0);
        dry.frame().expect("drawn");
        for second in 1..5 {
            told(&mut dry, second);
            let bytes = dry.frame().expect("drawn");
            assert!(bytes > 2_000, "everything changed");
            assert!(bytes <= 6 << 10, "{bytes} bytes");
        }
    }
}
