//! A Rust program with CUDA kernels: scales and sums a vector on the GPU, and says whether the result is right.

use std::ffi::c_int;

unsafe extern "C" {
    /// Adds up `factor * values[i]` on the GPU. Gives CUDA's error code, 0 for none.
    fn scaled_sum(values: *const f32, count: usize, factor: f32, sum: *mut f32) -> c_int;
}

fn main() {
    let values: Vec<f32> = (1..=100).map(|number| number as f32).collect();
    let mut sum = 0.0;
    // SAFETY: the slice and the result outlive the call, which keeps neither.
    let error = unsafe { scaled_sum(values.as_ptr(), values.len(), 2.0, &mut sum) };
    println!("sum = {sum}, error = {error}");
    let right = error == 0 && sum == 10100.0;
    println!("{}", if right { "PASS" } else { "FAIL" });
    std::process::exit(if right { 0 } else { 1 });
}
