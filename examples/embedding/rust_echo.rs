//! The C interface from Rust: two threads put 1,000 numbers, and the main thread takes batches of them.
//! Everything that is unsafe lies in `Buffer`.

use std::ffi::{c_char, c_void, CStr};
use std::mem::size_of;
use std::ptr::{null, null_mut};
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The declarations of pyecho.h that this program needs, in its order.
mod ffi {
    use super::{c_char, c_void};

    pub const OK: i32 = 0;
    pub const END: i32 = 1;
    pub const CLOSED: i32 = 3;
    pub const FOREVER: i64 = -1;

    #[repr(C)]
    pub struct Leaf {
        pub struct_bytes: usize,
        pub name: *const c_char,
        pub dtype: *const c_char,
        pub shape: *const i64,
        pub ndim: u32,
        pub reserved: u32,
        pub sizes: [usize; 3], // size_bytes, slot_offset, batch_offset
    }

    #[repr(C)]
    pub struct Config {
        pub struct_bytes: usize,
        pub leaves: *const Leaf,
        pub leaf_count: usize,
        pub factor: f64,
        pub order: [u64; 5], // seed, epoch, items, steps_per_epoch, max_age
        pub min_uses: u32,
        pub batch_size: u32,
        pub shuffle_buffer: u32,
        pub sizes: [u32; 4], // prefetch, threads, slots_ahead, held
        pub flags: [u8; 4],  // unique_in_batch, drop_last, with_info, reserved
        pub max_bytes: usize,
        pub allocator: [*const c_void; 3], // allocate, deallocate, context
    }

    #[repr(C)]
    pub struct Slot {
        pub data: *mut u8,
        pub ticket: u64,
        pub index: u32,
        pub reserved: u32,
    }

    #[repr(C)]
    pub struct Batch {
        pub struct_bytes: usize,
        pub data: *mut u8,
        pub source_index: *const i64,
        pub r#use: *const i32,
        pub rows: u32,
        pub end: u32,
        pub id: u64,
    }

    extern "C" {
        pub fn pyecho_create(config: *const Config, buffer: *mut *mut c_void) -> i32;
        pub fn pyecho_reserve(
            buffer: *mut c_void,
            slots: *mut Slot,
            wanted: usize,
            timeout_ns: i64,
            count: *mut usize,
        ) -> i32;
        pub fn pyecho_commit(buffer: *mut c_void, slots: *const Slot, count: usize) -> i32;
        pub fn pyecho_acquire(buffer: *mut c_void, batch: *mut Batch, timeout_ns: i64) -> i32;
        pub fn pyecho_release_batch(buffer: *mut c_void, batch: *mut Batch) -> i32;
        pub fn pyecho_close(buffer: *mut c_void) -> i32;
        pub fn pyecho_stop(buffer: *mut c_void) -> i32;
        pub fn pyecho_release(buffer: *mut c_void);
        pub fn pyecho_last_error() -> *const c_char;
    }
}

/// Echoes numbers. One thread takes batches, any number of threads put.
struct Buffer(*mut c_void);

// Every function of pyecho's may be called from any thread; batches are taken by one at a time.
unsafe impl Send for Buffer {}
unsafe impl Sync for Buffer {}

impl Buffer {
    fn new(factor: f64, batch_size: u32, shuffle_buffer: u32) -> Result<Buffer, String> {
        let leaf = ffi::Leaf {
            struct_bytes: size_of::<ffi::Leaf>(),
            name: null(),
            dtype: c"<f4".as_ptr(),
            shape: null(),
            ndim: 0,
            reserved: 0,
            sizes: [0; 3],
        };
        let config = ffi::Config {
            struct_bytes: size_of::<ffi::Config>(),
            leaves: &leaf,
            leaf_count: 1,
            factor,
            order: [0; 5],
            min_uses: 0,
            batch_size,
            shuffle_buffer,
            sizes: [0; 4],
            flags: [0; 4],
            max_bytes: 0,
            allocator: [null(); 3],
        };
        let mut buffer = null_mut();
        match unsafe { ffi::pyecho_create(&config, &mut buffer) } {
            ffi::OK => Ok(Buffer(buffer)),
            _ => Err(last_error()),
        }
    }

    /// Put a number: false once the consumer has stopped. Waits for room.
    fn put(&self, number: f32) -> Result<bool, String> {
        let mut slot = ffi::Slot { data: null_mut(), ticket: 0, index: 0, reserved: 0 };
        match unsafe { ffi::pyecho_reserve(self.0, &mut slot, 1, ffi::FOREVER, null_mut()) } {
            ffi::OK => {
                unsafe {
                    slot.data.cast::<f32>().write(number);
                    ffi::pyecho_commit(self.0, &slot, 1);
                }
                Ok(true)
            }
            ffi::CLOSED => Ok(false),
            _ => Err(last_error()),
        }
    }

    /// Lend the next batch to a function: None at the end. Waits for examples.
    fn take<T>(&self, use_rows: impl FnOnce(&[f32]) -> T) -> Result<Option<T>, String> {
        let mut batch = ffi::Batch {
            struct_bytes: size_of::<ffi::Batch>(),
            data: null_mut(),
            source_index: null(),
            r#use: null(),
            rows: 0,
            end: 0,
            id: 0,
        };
        match unsafe { ffi::pyecho_acquire(self.0, &mut batch, ffi::FOREVER) } {
            ffi::OK => unsafe {
                let rows = slice::from_raw_parts(batch.data.cast::<f32>(), batch.rows as usize);
                let result = use_rows(rows);
                ffi::pyecho_release_batch(self.0, &mut batch); // from here on, the rows are pyecho's
                Ok(Some(result))
            },
            ffi::END => Ok(None),
            _ => Err(last_error()),
        }
    }

    fn close(&self) {
        unsafe { ffi::pyecho_close(self.0) };
    }

    fn stop(&self) {
        unsafe { ffi::pyecho_stop(self.0) };
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        unsafe { ffi::pyecho_release(self.0) }
    }
}

fn last_error() -> String {
    unsafe { CStr::from_ptr(ffi::pyecho_last_error()) }.to_string_lossy().into_owned()
}

fn produce(buffer: &Buffer, next: &AtomicUsize, at_work: &AtomicUsize) -> Result<(), String> {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= 1000 || !buffer.put(number as f32)? {
            break;
        }
    }
    if at_work.fetch_sub(1, Ordering::AcqRel) == 1 {
        buffer.close(); // the last one to leave closes, as the others may still put some
    }
    Ok(())
}

fn consume(buffer: &Buffer) -> Result<(usize, f64), String> {
    let (mut count, mut sum) = (0, 0.0);
    while let Some((rows, part)) =
        buffer.take(|rows| (rows.len(), rows.iter().map(|&number| f64::from(number)).sum::<f64>()))?
    {
        count += rows;
        sum += part;
    }
    Ok((count, sum))
}

fn main() -> Result<(), String> {
    let buffer = Buffer::new(2.0, 32, 320)?;
    let (next, at_work) = (AtomicUsize::new(0), AtomicUsize::new(2));
    let (count, sum) = thread::scope(|scope| {
        let producers = [(); 2].map(|()| scope.spawn(|| produce(&buffer, &next, &at_work)));
        let taken = consume(&buffer);
        buffer.stop(); // so that no producer waits for room, after an early end
        for producer in producers {
            producer.join().expect("a producer panicked")?;
        }
        taken
    })?;
    println!("{count} rows, sum {sum}");
    Ok(())
}
